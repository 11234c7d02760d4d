"""A dataset of a user's own over an object store: many fallible reads at once, then decoding."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

import headrace as hr
from headrace.errors import DataError, RowErrors, SampleError

OBJECTS = 12
MISSING = 7
LIMIT_S = 20


class Store(ThreadingHTTPServer):
    """Objects by number, each its own number in ASCII; one of them is not there.

    Attributes:
        together: Passed only by four requests at once; None lets each go on.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.together: threading.Barrier | None = None


class Answer(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Store

    def do_GET(self) -> None:
        if self.server.together is not None:
            self.server.together.wait(LIMIT_S)
        number = int(self.path[1:])
        self.send_response(404 if number == MISSING else 200)
        self.end_headers()
        self.wfile.write(b"" if number == MISSING else str(number).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


class Objects(hr.Dataset):
    """One object per sample."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __len__(self) -> int:
        return OBJECTS

    async def fetch(self, indices: Sequence[int]) -> list[bytes]:
        got = await asyncio.gather(*map(self._get, indices), return_exceptions=True)
        errors = {row: each for row, each in enumerate(got) if isinstance(each, Exception)}
        if errors:
            raise RowErrors(errors)
        return [each for each in got if isinstance(each, bytes)]

    def decode(self, raw: bytes) -> torch.Tensor:
        return torch.tensor(int(raw))

    async def _get(self, index: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET /{index} HTTP/1.0\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
            await writer.wait_closed()
        if b" 200 " not in head.splitlines()[0]:
            raise DataError(f"object {index}: {head.splitlines()[0].decode()}")
        return body


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.mark.parametrize("workers", [0, 2])
def test_objects_of_a_batch_are_fetched_at_once(store: Store, workers: int) -> None:
    """Four requests wait for each other at the server, and the batch still comes (S0-83)."""
    store.together = threading.Barrier(4)
    data = Objects(store.server_port)

    with hr.Loader(data, 4, shuffle=False, probe=False, workers=workers, prefetch=1) as loader:
        batch = next(iter(loader))

    assert batch[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_object_that_cannot_be_had_is_named(store: Store, workers: int) -> None:
    """Batches before it come, then its error with its index and what the store said (S0-83)."""
    data = Objects(store.server_port)

    with hr.Loader(data, 4, shuffle=False, probe=False, workers=workers) as loader:
        stream = iter(loader)
        first = next(stream)[0].tolist()
        with pytest.raises(SampleError, match=rf"(?s)sample {MISSING}.*404"):
            next(stream)

    assert first == [0, 1, 2, 3]


def test_an_object_that_cannot_be_had_may_be_replaced(store: Store) -> None:
    """The others of its batch are kept, and another object takes its place (S0-83)."""
    data = Objects(store.server_port)

    with hr.Loader(data, 4, shuffle=False, probe=False, on_bad_sample="replace") as loader:
        rows = [batch[0].tolist() for batch in loader]

    assert [rows[0], rows[1][:3], rows[2]] == [[0, 1, 2, 3], [4, 5, 6], [8, 9, 10, 11]]
    assert rows[1][3] != MISSING
