"""What a scene is, and the list of them."""

from dataclasses import dataclass
from typing import Callable

SCENES = []


@dataclass
class Scene:
    """Plays snippets in a host, once with treaper and once without."""

    name: str
    snippets: tuple
    play: Callable
    quick: bool = False  # needs no slow installation
    control: bool = True  # is played without treaper too
    leaks: bool = True  # the control leaves something
    note: str = ""  # why it does not
    without: str = ""  # an option of the snippet: without it, something is left also with treaper
    trigger: str = ""  # that treaper has to name
    limit: float = 20  # seconds until nothing is left
    alone: bool = False


@dataclass
class Check:
    """Compares snippets with what is published about their format. Nothing is started by a host."""

    name: str
    snippets: tuple
    play: Callable
    quick: bool = False
    alone: bool = False


def scene(name, *snippets, in_document=True, **more):
    """A scene is named as its snippet, or names its snippets, or plays none (`in_document`)."""
    def register(play):
        SCENES.append(Scene(name, (snippets or (name,)) if in_document else (), play, **more))
        return play
    return register


def check(name, *snippets, **more):
    def register(play):
        SCENES.append(Check(name, snippets or (name,), play, **more))
        return play
    return register
