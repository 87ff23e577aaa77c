"""When requests and answers of a server passed the loopback interface, by the kernel's time stamps of their packets.

A second clock for response times: neither the client nor the server takes part, and a pause of either is seen. The packets wait in
the socket until they are read after the load, so that nothing runs beside it. Needs root (CAP_NET_RAW).
"""
import ctypes
import socket
import struct

# Room for the packets of a load, of which the kernel charges about 1 KiB each.
RECEIVE_BUFFER_BYTES = 256 << 20
# Of a packet: what leads to times, addresses and lengths.
SNAPSHOT_BYTES = 96

SO_ATTACH_FILTER, SO_RCVBUFFORCE, SO_TIMESTAMPNS, ETH_P_IP = 26, 33, 35, 0x0800


class Filter(ctypes.Structure):
    """struct sock_fprog, with its instructions kept alive."""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    def __init__(self, instructions):
        self.instructions_buffer = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
        super().__init__(len(instructions), ctypes.addressof(self.instructions_buffer))


def port_filter(port):
    """A filter for TCP packets without IP options from or to a port, of which it keeps the beginning (linux/filter.h)."""
    load_half, jump_equal, accept = 0x28, 0x15, 0x06
    return Filter([
        (load_half, 0, 0, 14 + 20),
        (jump_equal, 2, 0, port),
        (load_half, 0, 0, 14 + 22),
        (jump_equal, 0, 1, port),
        (accept, 0, 0, SNAPSHOT_BYTES),
        (accept, 0, 0, 0),
    ])


class PacketCapture:
    """Takes the packets of a port while it is entered."""

    def __init__(self, port):
        self.port = port

    def __enter__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        packet_filter = port_filter(self.port)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(packet_filter))
        self.socket.bind(("lo", ETH_P_IP))
        self.socket.setblocking(False)
        return self

    def __exit__(self, *_):
        self.socket.close()

    def exchanges(self):
        """Pairs of when a request was sent and when its answer came, in seconds, by when they were sent: one request at a time on
        each connection, and each answer in one packet."""
        pending, found = {}, []
        for at, source, target in self.packets():
            if target == self.port:
                pending.setdefault(source, at)
            elif target in pending:
                found.append((pending.pop(target), at))
        return sorted(found)

    def packets(self):
        """Time in seconds and ports of each packet with content. The loopback interface shows each twice: on its way out, which
        is left out, and in."""
        while True:
            try:
                packet, ancillary, _, address = self.socket.recvmsg(SNAPSHOT_BYTES, 64)
            except BlockingIOError:
                return
            length, = struct.unpack_from("!H", packet, 14 + 2)
            source, target = struct.unpack_from("!HH", packet, 14 + 20)
            content = length - 20 - (packet[14 + 20 + 12] >> 4) * 4
            if address[2] == socket.PACKET_OUTGOING or content <= 0:
                continue
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
            yield seconds + nanoseconds / 1e9, source, target
