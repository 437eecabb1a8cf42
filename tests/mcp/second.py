"""The second writer of a server's stdin: a process of its own, which reads no answers. Its arena gives it the commands.

    second.py inject TO COUNT     calls the tool `echo` so often
    second.py cancel TO REQUEST   cancels a request, and asks for a sign of life

TO is `unix:PATH`, a socket of treaper, or `pipe:PATH`, the server's stdin itself. Ends when all was taken.
"""

import json
import socket
import sys

SIZE = 2000  # bytes of a call: less than what a pipe takes at once, so that these calls are not torn themselves


def message(**members):
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


def messages(what, number):
    if what == "inject":
        # An id that the client never uses, so that it cannot take the answer for one of its own.
        for at in range(number):
            yield message(id=f"webhook-{at}", method="tools/call", params={"name": "echo", "arguments": {"message": "y" * SIZE}})
    else:
        yield message(method="notifications/cancelled", params={"requestId": number, "reason": "the operator"})
        yield message(id="operator", method="ping")


def main():
    what, to, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    kind, _, path = to.partition(":")
    if kind == "pipe":
        with open(path, "wb", buffering=0) as pipe:
            for each in messages(what, number):
                pipe.write(each)
        return
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        for each in messages(what, number):
            connection.sendall(each)
        connection.shutdown(socket.SHUT_WR)
        if connection.recv(1):
            sys.exit("treaper has answered")


main()
