"""kelvin in the guest with the module: files that are sent and received through the devices, and its messages."""
import json
import re

# Lengths around every boundary, a file of several blocks, and a name in a directory.
SCRIPT = r"""
mkdir -p /tmp/ends/source/below
number=0
for bytes in 0 1 4095 4096 4097 65535 65536 65537 3000001; do
    number=$((number + 1))
    head -c $bytes /dev/urandom > /tmp/ends/source/$number
done
head -c 70000 /dev/urandom > /tmp/ends/source/below/one
mkfifo /tmp/ends/said
# Both ends of the pipe stay open: a reader waits for the next line.
exec 3<>/tmp/ends/said

# One transfer: the options of the receiver, and of the sender, whose progress is not for the terminal.
transfer() {
    rm -rf /tmp/ends/target
    mkdir /tmp/ends/target
    kelvin receive $1 --once --listen 127.0.0.1:0 /tmp/ends/target >&3 2>/tmp/ends/log &
    receiver=$!
    read address <&3
    kelvin send $2 -r /tmp/ends/source $address >/tmp/ends/sent 2>/tmp/ends/errors || { cat /tmp/ends/errors /tmp/ends/log; return 1; }
    wait $receiver || { cat /tmp/ends/log; return 1; }
    read received <&3
    diff -r /tmp/ends/source /tmp/ends/target/source || return 1
    echo "ends: receive $1 / send $2"
    echo "ends: sender: $(cat /tmp/ends/sent)"
    echo "ends: receiver: $received"
}

transfer '' '--plain --device' || exit
transfer --device --plain || exit
transfer --device '--plain --device' || exit
transfer --device '--plain --device --no-verify --ack per-file' || exit
# The sender decides what is encrypted: the device carries that too.
transfer --device '' || exit

# A listener ends on SIGTERM, and accepts several senders one after the other.
rm -rf /tmp/ends/target
mkdir /tmp/ends/target
kelvin receive --device --overwrite --listen 127.0.0.1:0 /tmp/ends/target >&3 2>/tmp/ends/log &
receiver=$!
read address <&3
for number in 1 2 3; do
    kelvin send --plain --device /tmp/ends/source/5 $address >/tmp/ends/sent 2>/tmp/ends/errors || exit
    read received <&3
done
# A client of another protocol, and a client that sends nothing.
echo 'GET / HTTP/1.0' | nc ${address%:*} ${address##*:} >/dev/null
nc ${address%:*} ${address##*:} </dev/null >/dev/null
kelvin send --plain /tmp/ends/source/6 $address >/tmp/ends/sent 2>/tmp/ends/errors || exit
kill -TERM $receiver
wait $receiver || exit
cmp /tmp/ends/source/6 /tmp/ends/target/6 || exit
echo "ends: turned away: $(grep -c 'sent no greeting\|closed\|gone' /tmp/ends/log)"

kelvin study page || exit
kelvin study page --json > /tmp/ends/page.json || exit
echo "ends: page: $(tr -d '\n ' < /tmp/ends/page.json)"

# Errors are one line with status 2: no listener, a wildcard address, and no module.
refused() {
    "$@"
    [ $? = 2 ]
}
refused kelvin send --plain --device /tmp/ends/source/1 $address || exit
refused kelvin receive --device --listen 0.0.0.0:0 /tmp/ends/target || exit
rmmod kelvin || exit
refused kelvin send --plain --device /tmp/ends/source/1 $address || exit
refused kelvin receive --device /tmp/ends/target || exit
refused kelvin study page || exit
insmod /bin/kelvin.ko dyndbg=+p
"""

PAIR_LINES = re.compile(r"^ends: receive (.*) / send (.*)\nends: sender: (.*)\nends: receiver: (.*)$", re.MULTILINE)


# Page table flags of the published pages, and of a page that is only read.
SENDER_FLAGS, READ_FLAGS, RECEIVER_FLAGS = "0x8000000000000025", "0x8000000000000027", "0x8000000000000067"


def check_pages(output):
    """Checks the entries of both ends, and that kelvin reports them as equal to the published ones."""
    study = json.loads(re.search(r"^ends: page: (.*)$", output, re.MULTILINE)[1])
    flags_by_moment = {(end, page["moment"]): page["flags"] for end in ("sender", "receiver") for page in study[end] if page["is_present"]}
    assert flags_by_moment == {("sender", "read"): SENDER_FLAGS, ("receiver", "read"): READ_FLAGS, ("receiver", "written"): RECEIVER_FLAGS}, flags_by_moment
    moments = [page["moment"] for page in study["receiver"]]
    assert moments == ["untouched", "received", "read", "written"], moments
    assert output.count(": the same here") == 2, output


def check(output):
    """Checks that every pair of ends moved the same bytes, and that each end reported whether it was in the kernel."""
    pairs = PAIR_LINES.findall(output)
    assert len(pairs) == 5, output
    for receiving, sending, sender, receiver in pairs:
        assert sender.startswith("moved 10 files, ") and receiver.startswith("moved 10 files, "), (sender, receiver)
        assert ("this end was in the kernel (/dev/kelvin_sender)" in sender) == ("--device" in sending), sender
        assert ("this end was in the kernel (/dev/kelvin_receiver)" in receiver) == ("--device" in receiving), receiver
        assert ("not encrypted" in sender) == ("--plain" in sending), sender
    check_pages(output)
    refused_match = re.search(r"^ends: turned away: (\d+)$", output, re.MULTILINE)
    assert refused_match and int(refused_match[1]) == 2, output
    absent = "kelvin: --device: /dev/kelvin_{} is not there: load the module (make -C kmod; insmod kmod/kelvin.ko)"
    assert "kelvin: study page needs the kernel module: /dev/kelvin_sender is not there" in output, output
    for message in ["is every address of this host", absent.format("sender"), absent.format("receiver")]:
        assert message in output, (message, output)
    return f"{len(pairs)} pairs of ends of kelvin, the page-table entries of both"
