#!/usr/bin/env python3
"""forward.py PORT:TO...: takes connections on PORT of every address of this network, and forwards each to 127.0.0.1:TO.

The sidecar of docker-compose.yml listens on the loopback interface of its own network, which nothing outside can reach. Standard
library only.
"""

import asyncio
import sys


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:  # one end is gone: the other one ends, too
        writer.close()


def forward_to(port):
    async def forward(reader, writer):
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:  # the sidecar does not listen yet
            writer.close()
            return
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
        inner_writer.close()
        writer.close()

    return forward


async def main():
    pairs = [argument.split(":") for argument in sys.argv[1:]]
    servers = [await asyncio.start_server(forward_to(int(to)), "0.0.0.0", int(port)) for port, to in pairs]
    print("forwarding", *sys.argv[1:], flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main())
