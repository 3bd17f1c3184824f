"""Follows many logs at once: streams.py ADDRESS PORT TOKEN-FILE NAMES-FILE COUNT

Prints how long it takes until each stream has had its first line, and how many lines come in the 20 seconds after.
"""

import asyncio
import itertools
import ssl
import sys
import time

SECONDS = 20


class Count:
    def __init__(self):
        self.lines = 0
        self.streams = 0


async def follow(address, port, token, name, count, tls):
    reader, writer = await asyncio.open_connection(address, port, ssl=tls)
    path = f"/api/v1/namespaces/load/pods/{name}/log?follow=true&tailLines=1"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    status = await reader.readline()
    assert b" 200 " in status, status
    is_first = True
    while line := await reader.readline():
        if b"a line of" in line:
            count.streams += is_first
            is_first = False
            count.lines += 1
    raise EOFError(f"the log of {name} ended")


async def main():
    address, port, token_file, names_file, wanted = sys.argv[1:]
    with open(token_file) as token, open(names_file) as names:
        token, names = token.read().strip(), names.read().split()
    # Certificates are not checked, since only the streams are measured.
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    count, begin = Count(), time.monotonic()
    streams = [
        asyncio.create_task(follow(address, port, token, name, count, tls))
        for name in itertools.islice(itertools.cycle(names), int(wanted))
    ]

    async def until_all_stream():
        while count.streams < len(streams):
            await asyncio.sleep(0.1)

    async def rest():
        await until_all_stream()
        print(f"until {wanted} logs are followed: {time.monotonic() - begin:.1f} s", flush=True)
        before = count.lines
        await asyncio.sleep(SECONDS)
        print(f"lines of them: {(count.lines - before) / SECONDS:.0f} per second", flush=True)

    # A stream that ends is a failure.
    measured = asyncio.create_task(rest())
    await asyncio.wait([measured, *streams], return_when=asyncio.FIRST_COMPLETED, timeout=300)
    for stream in streams:
        if stream.done():
            stream.result()
        stream.cancel()
    assert measured.done(), f"{count.streams} streams had a line after {time.monotonic() - begin:.0f} s"
    measured.result()


asyncio.run(main())
