"""sluice.AsyncEngineClient: an EngineClient for asyncio, many requests at once on one event loop.

Engines in other processes wake the loop through a file descriptor; an engine in this process computes
on a thread of its own. Outputs that come faster than they are consumed are joined into one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from sluice import _sluice
from sluice.async_drivers import LoopDriver, Request, ThreadDriver, closed_error


class AsyncOutputStream:
    """The outputs of one request, from AsyncEngineClient.stream: an asynchronous iterator.

    Left before its end, by ``break``, an exception or a cancelled task, it aborts the request. The
    request begins when the first output is requested.

    >>> import asyncio
    >>> async def main():
    ...     async with sluice.AsyncEngineClient.local("models/default") as client:
    ...         async for output in client.stream("Once upon a time", temperature=0):
    ...             return output.text[:6]  # more may have come before it was requested
    >>> asyncio.run(main())
    ' there'
    """

    def __init__(self, driver, prompt, params, keywords) -> None:
        self._driver = driver
        self._arguments = (prompt, params, keywords)
        self._request = Request()

    @property
    def id(self) -> int | None:
        """The request, or None where it has not begun."""
        return self._request.id

    def __aiter__(self) -> "AsyncOutputStream":
        return self

    async def __anext__(self) -> "_sluice.Output":
        self._request.check_is_unread()  # not below: the stream goes on for the task that waits
        self._begin()
        try:
            output = await self._request.take()
        except BaseException:
            self.close()
            raise
        if output is None:
            raise StopAsyncIteration
        return output

    def close(self) -> None:
        """Aborts the request, unless it has ended.

        >>> import asyncio
        >>> async def main():
        ...     async with sluice.AsyncEngineClient.local("models/default") as client:
        ...         stream = client.stream("Once upon a time")
        ...         stream.close()
        ...         return [output async for output in stream]
        >>> asyncio.run(main())
        []
        """
        request = self._request
        was_begun = self._arguments is None
        self._arguments = None
        request.output = None
        if not request.is_over:
            request.is_over = True
            request.wake()
            if was_begun:
                self._driver.leave(request)

    async def aclose(self) -> None:
        """As close; for contextlib.aclosing.

        >>> sluice.AsyncOutputStream.aclose.__name__
        'aclose'
        """
        self.close()

    def __del__(self) -> None:
        self.close()

    def _begin(self):
        if self._arguments is not None:
            arguments, self._arguments = self._arguments, None
            try:
                self._driver.begin(self._request, *arguments)
            except BaseException:
                self._request.is_over = True
                raise


class AsyncEngineClient:
    """Requests to engines from asyncio: EngineClient's calls, many at once on one event loop.

    ``local``, ``connect`` and ``spawn`` take what EngineClient's take; ``async with`` opens what they
    give, and so does ``await``. A request without a waiting task is aborted. Where an engine is
    lost, every task that waits for it gets an UnavailableError.

    >>> import asyncio
    >>> async def main():
    ...     async with sluice.AsyncEngineClient.local("models/default") as client:
    ...         king, queen = await asyncio.gather(
    ...             client.generate("The king", max_tokens=4, temperature=0),
    ...             client.generate("The queen", max_tokens=6, temperature=0))
    ...         return king.output_tokens, queen.output_tokens
    >>> asyncio.run(main())
    (4, 6)
    """

    def __init__(self, make: Callable[[], "_sluice.EngineClient"]) -> None:
        self._make = make
        self._driver = None
        self._facts = None
        self._opening = asyncio.Lock()

    @classmethod
    def local(cls, *arguments: Any, **keywords: Any) -> "AsyncEngineClient":
        """As EngineClient.local; the engine computes on a thread of its own.

        >>> client = sluice.AsyncEngineClient.local("models/default", max_requests=8)
        """
        return cls(lambda: _sluice.EngineClient.local(*arguments, **keywords))

    @classmethod
    def connect(cls, *arguments: Any, **keywords: Any) -> "AsyncEngineClient":
        """As EngineClient.connect.

        >>> client = sluice.AsyncEngineClient.connect("tcp://127.0.0.1:5600", "models/default")
        """
        return cls(lambda: _sluice.EngineClient.connect(*arguments, **keywords))

    @classmethod
    def spawn(cls, *arguments: Any, **keywords: Any) -> "AsyncEngineClient":
        """As EngineClient.spawn.

        >>> client = sluice.AsyncEngineClient.spawn("models/default")
        """
        return cls(lambda: _sluice.EngineClient.spawn(*arguments, **keywords))

    async def open(self) -> "AsyncEngineClient":
        """Makes the client, on another thread; gives itself.

        >>> import asyncio
        >>> async def main():
        ...     client = await sluice.AsyncEngineClient.local("models/default").open()
        ...     await client.close()
        >>> asyncio.run(main())
        """
        async with self._opening:
            if self._driver is None:
                client = await asyncio.to_thread(self._make)
                self._facts = (client.info, client.tokenizer, client.pid)
                is_local = client.engine_counters is not None
                self._driver = (ThreadDriver if is_local else LoopDriver)(client)
        return self

    async def close(self) -> None:
        """Ends the engine, or leaves it; a task that waits for an output gets an Error.

        >>> import asyncio
        >>> asyncio.run(sluice.AsyncEngineClient.local("models/default").close())
        """
        async with self._opening:
            driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()

    def __await__(self) -> Generator[Any, None, "AsyncEngineClient"]:
        return self.open().__await__()

    async def __aenter__(self) -> "AsyncEngineClient":
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def stream(self, prompt: Any, params: "_sluice.SamplingParams | None" = None,
               **keywords: Any) -> AsyncOutputStream:
        """The outputs of a prompt as they come. Keywords as in EngineClient.submit.

        Outputs that come while no task waits are joined into one.

        >>> import asyncio
        >>> async def main():
        ...     async with sluice.AsyncEngineClient.local("models/default") as client:
        ...         stream = client.stream("Once upon a", max_tokens=2, temperature=0)
        ...         return "".join([output.text async for output in stream])
        >>> asyncio.run(main())
        ' time there'
        """
        return AsyncOutputStream(self._open_driver(), prompt, params, keywords)

    async def generate(self, prompt: Any, params: "_sluice.SamplingParams | None" = None,
                       **keywords: Any) -> "_sluice.Output | list[_sluice.Output]":
        """The whole text of a prompt, or of each of a list. As EngineClient.generate.

        Where the engine has no place for another request, it waits for one.

        >>> import asyncio
        >>> async def main():
        ...     async with sluice.AsyncEngineClient.local("models/default") as client:
        ...         return await client.generate("Once upon a", max_tokens=2, temperature=0)
        >>> asyncio.run(main()).text
        ' time there'
        """
        driver = self._open_driver()
        are_many = _sluice._are_prompts(prompt)
        streams, outputs, unread = [], [], deque()
        try:
            for one in prompt if are_many else [prompt]:
                # Where there is no slot, the oldest of these frees one.
                while unread and driver.live() >= self.info["max_client_requests"]:
                    outputs.append(await anext(unread.popleft()))
                stream = self.stream(one, params, mode="final", **keywords)
                stream._request.may_wait = True
                stream._begin()
                streams.append(stream)
                unread.append(stream)
            while unread:
                outputs.append(await anext(unread.popleft()))
        finally:
            for stream in streams:
                stream.close()
        return outputs if are_many else outputs[0]

    @property
    def info(self) -> dict[str, Any]:
        """The model and the limits of the (first) engine."""
        return self._fact(0)

    @property
    def tokenizer(self) -> "_sluice.Tokenizer":
        """What makes ids of prompts and text of ids."""
        return self._fact(1)

    @property
    def pid(self) -> int | None:
        """The process that spawn began, else None."""
        return self._fact(2)

    async def health(self) -> str:
        """As EngineClient.health.

        >>> import asyncio
        >>> async def main():
        ...     async with sluice.AsyncEngineClient.local("models/default") as client:
        ...         return await client.health()
        >>> asyncio.run(main())
        'ready'
        """
        return await self._open_driver().ask(lambda client: client.health)

    async def counters(self) -> dict[str, int]:
        """As EngineClient.counters.

        >>> import asyncio
        >>> async def main():
        ...     async with sluice.AsyncEngineClient.local("models/default") as client:
        ...         return (await client.counters())["requests"]
        >>> asyncio.run(main())
        0
        """
        return await self._open_driver().ask(lambda client: client.counters)

    async def engine_counters(self) -> dict[str, int] | None:
        """As EngineClient.engine_counters.

        >>> import asyncio
        >>> async def main():
        ...     async with sluice.AsyncEngineClient.local("models/default") as client:
        ...         return (await client.engine_counters())["running"]
        >>> asyncio.run(main())
        0
        """
        return await self._open_driver().ask(lambda client: client.engine_counters)

    def _open_driver(self):
        if self._driver is None:
            raise closed_error()
        return self._driver

    def _fact(self, index):
        if self._facts is None:
            raise closed_error()
        return self._facts[index]
