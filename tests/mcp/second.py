"""The second writer of a server's stdin: a process of its own, which reads no answers. Its arena gives it the commands.

    second.py inject TO COUNT     calls the tool `echo` so often
    second.py cancel TO SESSION   cancels the turn of a session of ACP

TO is `unix:PATH`, a socket of treaper, or `pipe:PATH`, the server's stdin itself. Ends when all was taken.
"""

import json
import socket
import sys

SIZE = 2000  # bytes of a call: less than what a pipe takes at once, so that these calls are not torn themselves


def message(**members):
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


def messages(what, word):
    if what == "inject":
        # An id that the client never uses, so that it cannot take the answer for one of its own.
        for at in range(int(word)):
            yield message(id=f"webhook-{at}", method="tools/call", params={"name": "echo", "arguments": {"message": "y" * SIZE}})
        return
    yield message(method="session/cancel", params={"sessionId": word})


def main():
    what, to, word = sys.argv[1:]
    kind, _, path = to.partition(":")
    if kind == "pipe":
        with open(path, "wb", buffering=0) as pipe:
            for each in messages(what, word):
                pipe.write(each)
        return
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        for each in messages(what, word):
            connection.sendall(each)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile().read()
        if answer != "ok\n":
            sys.exit(f"treaper has answered: {answer}")


main()
