"""What sluice.AsyncEngineClient runs on: requests, and the polls of the client of engines for them.

A driver begins requests and hands out their outputs on the event loop; LoopDriver polls there as well,
ThreadDriver on a thread, for an engine that computes in poll.
"""

import asyncio
import atexit
import contextlib
import queue
import threading

from sluice.errors import Error, ExhaustedError


class Request:
    """One request on its way between an engine and its consumer. All of it is the loop's."""

    def __init__(self):
        self.id = None
        self.output = None  # what the consumer has not had yet
        self.failure = None
        self.is_over = False  # nothing comes any more
        self.may_wait = False  # for a free place
        self._waiter = None

    def put(self, output):
        if self.output is None:
            self.output = output
        else:
            self.output._join(output)
        self.is_over = output.finish is not None
        self.wake()

    def fail(self, failure):
        if not self.is_over:
            self.failure, self.is_over = failure, True
            self.wake()

    def wake(self):
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def check_is_unread(self):
        if self._waiter is not None:
            raise RuntimeError("anext(): another task waits for this stream already")

    async def take(self):
        """The next output, or None after the last one. One task at a time may wait."""
        self.check_is_unread()
        while self.output is None:
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
            if self.is_over:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        output, self.output = self.output, None
        output._raise_if_failed()
        return output


class Submitter:
    """Gives requests to a client; those that may wait for a place get one as others end."""

    def __init__(self, client):
        self._client = client
        self._live = {}
        self._waiting = {}  # arguments of requests, the longest wait first

    def submit(self, request, *arguments):
        # An aborted request keeps its place until its engine has ended it.
        if not request.may_wait:
            self._submit(request, *arguments)
        elif self._waiting or not self._submit_if_free(request, *arguments):
            self._waiting[request] = arguments

    def submit_waiting(self, refuse):
        """Called after each poll."""
        while self._waiting:
            request, arguments = next(iter(self._waiting.items()))
            try:
                if not self._submit_if_free(request, *arguments):
                    return
            except Exception as failure:  # noqa: BLE001: it is the consumer's
                refuse(request, failure)
            del self._waiting[request]

    def _submit_if_free(self, request, *arguments):
        try:
            self._submit(request, *arguments)
        except ExhaustedError as failure:
            if failure.parameter != "requests":  # what no end of another request would change
                raise
            return False
        return True

    def _submit(self, request, prompt, params, keywords):
        request.id = self._client.submit(prompt, params, **keywords)
        self._live[request.id] = request

    def abort(self, request):
        if self._waiting.pop(request, None) is None and request.id in self._live:
            self._client.abort(request.id)


class LoopDriver(Submitter):
    """Polls on the loop, whenever the client's file descriptor says that there is something to do."""

    def __init__(self, client):
        super().__init__(client)
        self._loop = asyncio.get_running_loop()
        self._fd = client.fileno()
        self._loop.add_reader(self._fd, self._poll)

    def live(self):
        return len(self._live) + len(self._waiting)

    def begin(self, request, prompt, params, keywords):
        if self._client is None:
            raise closed_error()
        self.submit(request, prompt, params, keywords)

    def leave(self, request):
        # Not here: a request may be dropped anywhere, in the middle of a poll as well.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._abort, request)

    async def ask(self, question):
        if self._client is None:
            raise closed_error()
        return question(self._client)

    async def close(self):
        self._loop.remove_reader(self._fd)
        client, self._client = self._client, None
        self.fail(closed_error())
        await finished(self._loop, client.close)

    def fail(self, failure):
        lost = [*self._live.values(), *self._waiting]
        self._live, self._waiting = {}, {}
        for request in lost:
            request.fail(failure)

    def _abort(self, request):
        if self._client is not None:
            self.abort(request)

    def _poll(self):
        if self._client is None:
            return
        try:
            self._hand_out(self._client.poll(0))
            self.submit_waiting(Request.fail)
        except Exception as failure:  # noqa: BLE001: it is every consumer's
            for number in self._live:
                with contextlib.suppress(Exception):
                    self._client.abort(number)
            self.fail(failure)
        except BaseException:
            # A signal handler's. Outputs may wait in the client, which the descriptor does not show.
            self._loop.call_soon(self._poll)
            raise

    def _hand_out(self, outputs):
        for output in outputs:
            request = self._live.get(output.id)
            if request is not None and not request.is_over:
                request.put(output)
            if output.finish is not None:
                self._live.pop(output.id, None)


class ThreadDriver(Submitter):
    """Polls on a thread, for an engine that computes in poll. Commands reach it between two steps."""

    def __init__(self, client):
        super().__init__(client)  # from here on the thread's
        self._loop = asyncio.get_running_loop()
        self._commands = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._news = {}  # outputs for the loop, by request; under the lock
        self._begun = {}  # the loop's: requests without their last output
        self._failure = None  # the thread's: it serves no request any more
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="sluice-engine", daemon=True)
        self._thread.start()
        # Python ends threads in the middle of a step, and with them the process, by an abort.
        atexit.register(self._stop)

    def live(self):
        return len(self._begun)

    def begin(self, request, prompt, params, keywords):
        self._check()
        self._begun[request] = True
        self._commands.put((self._take_in, request, prompt, params, keywords))

    def leave(self, request):
        self._commands.put((self._leave, request))

    async def ask(self, question):
        self._check()
        answer = self._loop.create_future()
        self._commands.put((self._answer, question, answer))
        return await answer

    async def close(self):
        self._is_closed = True
        self.fail(closed_error())
        await finished(self._loop, self._end)

    def _end(self):
        self._stop()
        atexit.unregister(self._stop)
        self._client.close()

    def _check(self):
        if self._is_closed:
            raise closed_error()
        if self._failure is not None:
            raise self._failure

    def _stop(self):
        self._commands.put(None)
        self._thread.join()

    def fail(self, failure):
        begun, self._begun = self._begun, {}
        for request in begun:
            request.fail(failure)

    # On the thread.

    def _run(self):
        try:
            self._serve()
        except BaseException as failure:  # noqa: BLE001: it is every consumer's
            self._failure = failure
            self._call(self.fail, failure)
            self._refuse_all()

    def _serve(self):
        while True:
            while not ((self._live or self._waiting) and self._commands.empty()):
                command = self._commands.get()
                if command is None:
                    return
                command[0](*command[1:])
            if outputs := self._client.poll(0):
                self._tell(outputs)
            self.submit_waiting(lambda *refused: self._call(self._refuse, *refused))

    def _refuse_all(self):
        # Until the end: the loop may have sent a command before it saw the failure.
        while (command := self._commands.get()) is not None:
            function, *arguments = command
            if function == self._take_in:
                self._call(self._refuse, arguments[0], self._failure)
            elif function == self._answer:
                self._call(set_failure, arguments[1], self._failure)

    def _take_in(self, request, *arguments):
        try:
            self.submit(request, *arguments)
        except Exception as failure:  # noqa: BLE001: it is the consumer's
            self._call(self._refuse, request, failure)

    def _leave(self, request):
        is_waiting = request in self._waiting
        self.abort(request)
        if is_waiting:
            self._call(self._begun.pop, request, None)

    def _answer(self, question, answer):
        try:
            result = question(self._client)
        except BaseException as failure:  # noqa: BLE001: it is the asker's
            self._call(set_failure, answer, failure)
        else:
            self._call(lambda: answer.done() or answer.set_result(result))

    def _tell(self, outputs):
        with self._lock:
            is_new = not self._news
            for output in outputs:
                request = self._live[output.id]
                if output.finish is not None:
                    del self._live[output.id]
                if request in self._news:
                    self._news[request]._join(output)
                else:
                    self._news[request] = output
        if is_new:
            self._call(self._hand_out)

    def _call(self, function, *arguments):
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    # On the loop.

    def _hand_out(self):
        with self._lock:
            news, self._news = self._news, {}
        for request, output in news.items():
            if output.finish is not None:
                self._begun.pop(request, None)
            if not request.is_over:
                request.put(output)

    def _refuse(self, request, failure):
        self._begun.pop(request, None)
        request.fail(failure)


async def finished(loop, function):
    """function() on another thread, to its end even where the task that waits is cancelled."""
    await asyncio.shield(loop.run_in_executor(None, function))


def set_failure(answer, failure):
    if not answer.done():
        answer.set_exception(failure)


def closed_error():
    return Error("client", "closed", "one that is open")
