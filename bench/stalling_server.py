#!/usr/bin/env python3
"""An HTTP server that answers one request at a time, each after the same service time, and stalls at planted times.

What response times follow from that is computed by `expected_closed` and `expected_open`, which serve the same queue without a
socket. Prints its port. It does not say how long its answers took: a server that was paused begins to count when it goes on.
"""
import argparse
import collections
import heapq
import select
import signal
import socket
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class StallingQueue:
    """One server of a queue: a service time, and stalls of a length at the end of each period; all in seconds."""

    def __init__(self, service, stall, period):
        self.service, self.stall, self.period, self.free = service, stall, period, 0.0

    def finish(self, arrival):
        """When a request that arrives at this time is answered."""
        start = max(arrival, self.free)
        stalls = (start // self.period + 1) * self.period - self.stall
        if start >= stalls:
            end = stalls + self.stall + self.service
        elif start + self.service > stalls:
            # What is not done before the stall is done after it.
            end = start + self.stall + self.service
        else:
            end = start + self.service
        self.free = end
        return end


def expected_closed(planted, users, seconds):
    """Response times of users who do not think."""
    arrivals, times = [(0.0, user) for user in range(users)], []
    while True:
        at, user = heapq.heappop(arrivals)
        if at >= seconds:
            return times
        end = planted.finish(at)
        times.append(end - at)
        heapq.heappush(arrivals, (end, user))


def expected_open(planted, arrivals):
    """Response times of requests that arrive at these times."""
    return [planted.finish(at) - at for at in arrivals]


def quantile(times, share):
    ordered = sorted(times)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def serve(planted):
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    begun = time.monotonic()
    print(listener.getsockname()[1], flush=True)
    listener.setblocking(False)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    connections, pending = {}, collections.deque()

    def poll_sockets():
        for descriptor, _ in poll.poll(0):
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[connection.fileno()] = connection
                poll.register(connection, select.EPOLLIN)
                continue
            connection = connections[descriptor]
            try:
                received = connection.recv(65536)
            except ConnectionError:
                received = b""
            if not received:
                poll.unregister(descriptor)
                del connections[descriptor]
                connection.close()
            elif received.endswith(b"\r\n\r\n"):
                arrival = time.monotonic() - begun
                pending.append((planted.finish(arrival), connection))

    stop_requested = []
    signal.signal(signal.SIGTERM, lambda *_: stop_requested.append(True))
    # Never asleep: a sleeping thread is woken up late.
    while not stop_requested:
        poll_sockets()
        if pending and time.monotonic() - begun >= pending[0][0]:
            _, connection = pending.popleft()
            try:
                connection.send(ANSWER)
            except OSError:
                continue


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service", type=float, required=True)
    parser.add_argument("--stall", type=float, required=True)
    parser.add_argument("--period", type=float, required=True)
    arguments = parser.parse_args()
    serve(StallingQueue(arguments.service, arguments.stall, arguments.period))
