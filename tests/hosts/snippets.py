"""The snippets of a document: each fenced block whose first line is ```LANGUAGE id=NAME."""

import re
from dataclasses import dataclass

FENCE = re.compile(r"^```(\S*)[ ]*(.*)$")
ID = re.compile(r"(?:^| )id=(\S+)")


@dataclass(frozen=True)
class Snippet:
    name: str
    language: str
    text: str
    place: str  # file:line


class Unreadable(Exception):
    pass


def read(paths):
    """All snippets by name. A block without a name, or a name that comes twice, is an error: it would not be played."""
    found = {}
    for path in paths:
        language = None
        with open(path) as file:
            for number, line in enumerate(file, 1):
                fence = FENCE.match(line)
                if language is None and fence:
                    language, name, start, lines = fence[1], ID.search(fence[2]), number, []
                    if not name:
                        raise Unreadable(f"{path}:{number}: a block without id=NAME")
                elif language is not None and line.startswith("```"):
                    if name[1] in found:
                        raise Unreadable(f"{path}:{start}: there is another snippet {name[1]}")
                    found[name[1]] = Snippet(name[1], language, "".join(lines), f"{path}:{start}")
                    language = None
                elif language is not None:
                    lines.append(line)
        if language is not None:
            raise Unreadable(f"{path}:{start}: a block without an end")
    return found
