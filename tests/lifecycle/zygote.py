"""A process with everything imported that forks one child per script, and tells how it ended.

Importing torch takes seconds and forking takes milliseconds, so tests that need a process of
their own can be many. A child runs its script as the main module and then ends as any program
does, exit hooks included. Run as `python -m tests.lifecycle.zygote <socket fd>`.
"""

import faulthandler
import gc
import os
import socket
import sys

import headrace  # noqa: F401 - what children shall find imported
from tests.lifecycle import data  # noqa: F401


def serve(requests: socket.socket) -> str:
    """Give the script to run, in a child; the zygote itself never returns."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, 2)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            requests.close()
            # A group of its own: what it forks can be ended with it.
            os.setpgid(0, 0)
            for to, descriptor in enumerate(descriptors, 1):
                os.dup2(descriptor, to)
                os.close(descriptor)
            return message.decode()
        for descriptor in descriptors:
            os.close(descriptor)
        requests.sendall(f"{pid}\n".encode())
        requests.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())


if __name__ == "__main__":
    faulthandler.enable()
    # What is imported lies still in the children: their exits then take a third of the time.
    gc.collect()
    gc.freeze()
    main_socket = socket.socket(fileno=int(sys.argv[1]))
    main_socket.sendall(b"ready\n")
    exec(compile(serve(main_socket), "<child>", "exec"))
