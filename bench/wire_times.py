"""Times at which requests and responses of a server pass the loopback interface, from the kernel's time stamps of their packets.

It is an independent clock for response times. Neither client nor server takes part, and a pause of either shows. The packets wait in
the socket until the load has ended, so that no other program runs during the load. Needs root (CAP_NET_RAW).
"""
import ctypes
import socket
import struct

# Buffer for the packets of a load. The kernel charges about 1 KiB for each.
RECEIVE_BUFFER_BYTES = 256 << 20
# Captured bytes of a packet: its headers, with addresses and lengths.
CAPTURE_BYTES = 96

SO_ATTACH_FILTER, SO_RCVBUFFORCE, SO_TIMESTAMPNS, ETH_P_IP = 26, 33, 35, 0x0800


class SocketFilter(ctypes.Structure):
    """struct sock_fprog, with its instructions kept alive."""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    def __init__(self, instructions):
        self.instructions_buffer = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in instructions))
        super().__init__(len(instructions), ctypes.addressof(self.instructions_buffer))


def port_filter(port):
    """A filter that accepts the start of TCP packets without IP options from or to a port (linux/filter.h)."""
    load_halfword, jump_equal, return_length = 0x28, 0x15, 0x06
    return SocketFilter([
        (load_halfword, 0, 0, 14 + 20),
        (jump_equal, 2, 0, port),
        (load_halfword, 0, 0, 14 + 22),
        (jump_equal, 0, 1, port),
        (return_length, 0, 0, CAPTURE_BYTES),
        (return_length, 0, 0, 0),
    ])


class PacketCapture:
    """Captures the packets of a port within a `with` block."""

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
        """Pairs of the times, in seconds, of a request and of its response, sorted by the request.

        Each connection has one request at a time, and each response is one packet.
        """
        pending, exchanges = {}, []
        for time, source, target in self.packets():
            if target == self.port:
                pending.setdefault(source, time)
            elif target in pending:
                exchanges.append((pending.pop(target), time))
        return sorted(exchanges)

    def packets(self):
        """The time in seconds and the ports of each packet with payload.

        The loopback interface shows each packet twice, outgoing and incoming. The outgoing one is skipped.
        """
        while True:
            try:
                packet, ancillary, _, address = self.socket.recvmsg(CAPTURE_BYTES, 64)
            except BlockingIOError:
                return
            total_length, = struct.unpack_from("!H", packet, 14 + 2)
            source, destination = struct.unpack_from("!HH", packet, 14 + 20)
            payload_length = total_length - 20 - (packet[14 + 20 + 12] >> 4) * 4
            if address[2] == socket.PACKET_OUTGOING or payload_length <= 0:
                continue
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
            yield seconds + nanoseconds / 1e9, source, destination
