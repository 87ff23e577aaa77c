#!/usr/bin/env python3
"""An HTTP server that answers one request at a time, each after the same service time, and stalls at planted times.

`expected_closed` and `expected_open` compute the response times that follow: they serve the same queue without a socket. The server
prints its port. It does not report response times: a paused server would start its clock only when it continues.
"""
import argparse
import collections
import heapq
import select
import signal
import socket
import time

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class StallingQueue:
    """A queue with one server: a service time, and a stall at the end of each period, in seconds."""

    def __init__(self, service, stall, period):
        self.service, self.stall, self.period, self.free_at = service, stall, period, 0.0

    def finish(self, arrival):
        """The time at which a request that arrives at this time is answered."""
        start = max(arrival, self.free_at)
        stall_start = (start // self.period + 1) * self.period - self.stall
        if start >= stall_start:
            end = stall_start + self.stall + self.service
        elif start + self.service > stall_start:
            # Work that is not done before the stall is done after it.
            end = start + self.stall + self.service
        else:
            end = start + self.service
        self.free_at = end
        return end


def expected_closed(queue, users, seconds):
    """Response times of users without think time."""
    arrivals, times = [(0.0, user) for user in range(users)], []
    while True:
        arrival, user = heapq.heappop(arrivals)
        if arrival >= seconds:
            return times
        finish_time = queue.finish(arrival)
        times.append(finish_time - arrival)
        heapq.heappush(arrivals, (finish_time, user))


def expected_open(queue, arrivals):
    """Response times of requests that arrive at these times."""
    return [queue.finish(arrival) - arrival for arrival in arrivals]


def quantile(times, share):
    sorted_times = sorted(times)
    return sorted_times[min(int(share * len(sorted_times)), len(sorted_times) - 1)]


def serve(queue):
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    start_time = time.monotonic()
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
                arrival = time.monotonic() - start_time
                pending.append((queue.finish(arrival), connection))

    stop_requested = []
    signal.signal(signal.SIGTERM, lambda *_: stop_requested.append(True))
    # It polls instead of sleeping, because a sleeping thread wakes late.
    while not stop_requested:
        poll_sockets()
        if pending and time.monotonic() - start_time >= pending[0][0]:
            _, connection = pending.popleft()
            try:
                connection.send(RESPONSE)
            except OSError:
                continue


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service", type=float, required=True)
    parser.add_argument("--stall", type=float, required=True)
    parser.add_argument("--period", type=float, required=True)
    arguments = parser.parse_args()
    serve(StallingQueue(arguments.service, arguments.stall, arguments.period))
