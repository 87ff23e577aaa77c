//! Exact arithmetic on made-up costs.

use std::time::Duration;

use kelvin_transfer::raw_protocol::RawReceiveLimits;

use super::*;

fn linear_curve(intercept: f64, slope: f64) -> CostCurve {
    CostCurve::new(vec![(0.0, intercept), (1e9, intercept + slope * 1e9)])
}

/// Costs in round figures: a call of a socket takes 100 ns, a byte of it nothing.
fn costs() -> TransferCosts {
    TransferCosts {
        connect: 10_000.0,
        reconnect: 5_000.0,
        wake: 20_000.0,
        wake_surcharge: 15_000.0,
        round_trip: 60_000.0,
        open: 700.0,
        packet: 1_200.0,
        send: linear_curve(100.0, 0.0),
        receive: linear_curve(100.0, 0.0),
        line: 0.0,
        read: linear_curve(200.0, 0.0),
        from_memory: 0.0,
        window: 2_000.0,
        written_window: 2_000.0,
        clear_byte: 0.0,
        fault: 1_000.0,
        create: 8_000.0,
        block: linear_curve(400.0, 0.0),
        long_file: LongFileCost { lengths: [1e6, 2e6], extra_cost: linear_curve(0.0, 0.0) },
        mapped_file: linear_curve(20_000.0, 1.0),
        mapped_window: 1_048_576.0,
        byte_by_reference: None,
        request: None,
    }
}

fn send_options(method: SendMethod, buffer: usize) -> RawSendOptions {
    let setup = SendSetup {
        method,
        mode: if method == SendMethod::Uring { Mode::Uring } else { Mode::Blocking },
        buffer,
        window: 16,
        timeout: Duration::from_secs(1),
    };
    RawSendOptions { setup, connection: ConnectionLifetime::Persistent, reply: false, digest: false }
}

fn receive_options(method: ReceiveMethod, buffer: usize) -> RawReceiveOptions {
    let setup = ReceiveSetup { method, mode: Mode::Blocking, buffer, window: 16, timeout: Duration::from_secs(1) };
    RawReceiveOptions {
        setup,
        connection: ConnectionLifetime::Persistent,
        limits: RawReceiveLimits { files: 10, bytes: 1 << 30 },
    }
}

const WINDOW: usize = 16 * 4096;

#[test]
fn curve_interpolates_and_extrapolates() {
    let curve = CostCurve::new(vec![(64.0, 200.0), (4096.0, 300.0), (65_536.0, 2300.0)]);
    let cost = |bytes: f64| curve.cost_at(bytes).round();
    assert_eq!([0.0, 64.0, 2080.0, 4096.0, 34_816.0, 65_536.0].map(cost), [200.0, 200.0, 250.0, 300.0, 1300.0, 2300.0]);
    assert_eq!(cost(126_976.0), 4300.0);
    // Two of 4096 bytes and one of 2080.
    assert_eq!(curve.calls_cost(2.0 * 4096.0 + 2080.0, 4096.0).round(), 850.0);
}

#[test]
fn slower_end_sets_time() {
    let (sending, receiving) =
        (send_options(SendMethod::ReadWrite, 512), receive_options(ReceiveMethod::ReadWrite, 512));
    let transfer = TransferShape { lengths: &[512 * 1000], sending: &sending, receiving: &receiving };
    let expected = transfer.expected_transfer(&costs());
    // 1000 reads and sends of 300 ns, opening, header and packet; 1000 of 500 ns, two of framing, and the file.
    assert_eq!(expected.sender, 300_000.0 + 700.0 + 100.0 + 1_200.0);
    assert_eq!(expected.receiver, 500_000.0 + 200.0 + 8_000.0);
    // Connecting, waking, and what the sender does for the first of eight segments.
    assert_eq!((expected.wakes, expected.serial), (0.0, 30_000.0 + 302_000.0 / 8.0));
    assert_eq!(expected.time, expected.serial + expected.receiver);
}

#[test]
fn slow_sender_wakes_receiver_per_segment() {
    let (sending, receiving) =
        (send_options(SendMethod::ReadWrite, 512), receive_options(ReceiveMethod::Mmap, 1 << 20));
    let transfer = TransferShape { lengths: &[512 * 1000], sending: &sending, receiving: &receiving };
    let costs = TransferCosts { mapped_file: linear_curve(20_000.0, 0.0), ..costs() };
    let expected = transfer.expected_transfer(&costs);
    // The receiver takes 20 us, two calls of framing and eight of segments; the sender is 35 us a segment slower.
    assert_eq!(expected.receiver, 20_000.0 + 200.0 + 800.0);
    assert_eq!((expected.wakes, expected.sender), (8.0, 302_000.0 + 8.0 * 15_000.0));
    assert_eq!(expected.time, 30_000.0 + 21_000.0 / 8.0 + expected.sender);
}

#[test]
fn cross_cpu_lines_cost_both_ends() {
    let (sending, receiving) =
        (send_options(SendMethod::ReadWrite, 512), receive_options(ReceiveMethod::ReadWrite, 512));
    let transfer = TransferShape { lengths: &[64_000], sending: &sending, receiving: &receiving };
    let slow_sender = |line| TransferCosts { line, read: self::linear_curve(600.0, 0.0), ..costs() };
    let (without_lines, with_lines) =
        (transfer.expected_transfer(&slow_sender(0.0)), transfer.expected_transfer(&slow_sender(20.0)));
    // 125 calls of 8 lines each: one is waited for, and the others arrive ten at a time.
    assert_eq!(
        (with_lines.sender - without_lines.sender, with_lines.receiver - without_lines.receiver),
        (4_250.0, 4_250.0)
    );
    // A sender that is ahead waits, and finds none of its lines with the other CPU.
    let (without_lines, with_lines) =
        (transfer.expected_transfer(&costs()), transfer.expected_transfer(&TransferCosts { line: 20.0, ..costs() }));
    assert_eq!(
        (with_lines.sender - without_lines.sender, with_lines.receiver - without_lines.receiver),
        (0.0, 4_250.0)
    );
    // One that would be ahead but for them never fills its buffer.
    let long_blocks = self::receive_options(ReceiveMethod::ReadWrite, 65_536);
    let transfer = TransferShape { receiving: &long_blocks, ..transfer };
    let expected_with_line = |line| {
        let costs = TransferCosts {
            line,
            read: self::linear_curve(380.0, 0.0),
            block: self::linear_curve(70_000.0, 0.0),
            ..costs()
        };
        transfer.expected_transfer(&costs)
    };
    let (without_lines, with_lines) = (expected_with_line(0.0), expected_with_line(200.0));
    assert!(
        without_lines.sender < without_lines.receiver && with_lines.sender > with_lines.receiver,
        "{without_lines:?} {with_lines:?}"
    );
    let wake_time = |expected: ExpectedTransfer| expected.wakes * 15_000.0;
    assert!(
        (with_lines.sender - wake_time(with_lines) - without_lines.sender - 42_500.0).abs() < 1e-6,
        "{with_lines:?}"
    );
}

#[test]
fn long_file_blocks_cost_more() {
    let (sending, receiving) =
        (send_options(SendMethod::ReadWrite, 65_536), receive_options(ReceiveMethod::ReadWrite, 65_536));
    let long_file = LongFileCost { lengths: [1e6, 3e6], extra_cost: linear_curve(0.0, 0.001) };
    let extra_time = |bytes: u64| {
        let transfer = TransferShape { lengths: &[bytes], sending: &sending, receiving: &receiving };
        let receive_time = |costs: &TransferCosts| transfer.expected_transfer(costs).receiver;
        (receive_time(&TransferCosts { long_file: long_file.clone(), ..costs() }) - receive_time(&costs())).round()
    };
    assert_eq!([1_000_000, 2_000_000, 3_000_000, 6_000_000].map(extra_time), [0.0, 1_000.0, 3_000.0, 6_000.0]);
}

#[test]
fn buffer_clearing_overlaps_wake_up() {
    let (sending, receiving) =
        (send_options(SendMethod::ZeroCopy, 65_536), receive_options(ReceiveMethod::ReadWrite, 1 << 20));
    let transfer = TransferShape { lengths: &[1], sending: &sending, receiving: &receiving };
    let serial_time = |clear_byte| transfer.expected_transfer(&TransferCosts { clear_byte, ..costs() }).serial;
    // 64 buffers of the sender, and one of the receiver.
    let (sender, receiver) = ((4 << 20) as f64, (1 << 20) as f64);
    let receiver_is_last = 1e-3;
    assert!((serial_time(receiver_is_last) - serial_time(0.0) - receiver_is_last * receiver).abs() < 1e-6);
    let sender_is_last = 1e-1;
    assert!((serial_time(sender_is_last) - serial_time(0.0) - sender_is_last * sender).abs() < 1e-6);
}

#[test]
fn connections_replies_windows_add_cost() {
    let (mut sending, mut receiving) =
        (send_options(SendMethod::Mmap, WINDOW), receive_options(ReceiveMethod::Mmap, WINDOW));
    let lengths = [WINDOW as u64 * 3; 4];
    let expected = |sending: &RawSendOptions, receiving: &RawReceiveOptions| {
        TransferShape { lengths: &lengths, sending, receiving }.expected_transfer(&costs())
    };
    let base = expected(&sending, &receiving);
    // Three windows and mapping away the last, three faults and three sends for each file; at the receiver two more
    // windows than one of 1 MiB, and four segments.
    assert_eq!(base.sender, 4.0 * (3.0 * 3_100.0 + 2_000.0 + 2_000.0));
    assert_eq!(base.receiver, 4.0 * (20_000.0 + 3.0 * WINDOW as f64 + 2.0 * 2_000.0 + 400.0 + 200.0));
    (sending.connection, receiving.connection) = (ConnectionLifetime::PerFile, ConnectionLifetime::PerFile);
    assert_eq!(expected(&sending, &receiving).receiver, base.receiver + 3.0 * 5_000.0);
    sending.connection = ConnectionLifetime::Persistent;
    sending.reply = true;
    let with_replies = expected(&sending, &receiving);
    assert!(
        (with_replies.time - base.time - 4.0 * 60_000.0 - 3.0 * base.sender / 16.0).abs() < 1e-6,
        "{with_replies:?}"
    );
}

#[test]
fn ring_and_reference_add_costs() {
    let (ring, receiving) = (send_options(SendMethod::Uring, 65_536), receive_options(ReceiveMethod::Uring, 65_536));
    let lengths = [655_360];
    let transfer = TransferShape { lengths: &lengths, sending: &ring, receiving: &receiving };
    let (calls, requests) = (
        transfer.expected_transfer(&costs()),
        transfer.expected_transfer(&TransferCosts { request: Some(150.0), ..costs() }),
    );
    assert_eq!((requests.sender - calls.sender, requests.receiver - calls.receiver), (3_000.0, 3_000.0));
    let sendfile = send_options(SendMethod::Sendfile, 65_536);
    let transfer = TransferShape { lengths: &lengths, sending: &sendfile, receiving: &receiving };
    let expected = transfer.expected_transfer(&TransferCosts { byte_by_reference: Some(0.5), ..costs() });
    assert_eq!(expected.sender - expected.wakes * 15_000.0, 163_840.0 + 2_000.0, "half of it at either end");
    let zero_copy = send_options(SendMethod::ZeroCopy, 65_536);
    let copied_receive_time = |byte_by_reference| {
        let transfer = TransferShape { lengths: &lengths, sending: &zero_copy, receiving: &receiving };
        transfer.expected_transfer(&TransferCosts { byte_by_reference, ..costs() }).receiver
    };
    assert_eq!(
        copied_receive_time(Some(0.5)) - copied_receive_time(None),
        163_840.0,
        "copied when it arrives, by either end"
    );
}

#[test]
fn published_cells_have_known_sender_calls() {
    let calls = |method, buffer, lengths: &[u64]| {
        let (sending, receiving) = (send_options(method, buffer), receive_options(ReceiveMethod::ReadWrite, 512));
        TransferShape { lengths, sending: &sending, receiving: &receiving }.sender_calls()
    };
    let small_lengths: Vec<u64> = [[2412; 4].as_slice(), &[2411; 6]].concat();
    // As counted: a header for each file, an end marker, and two calls a buffer or three a window.
    assert_eq!(calls(SendMethod::ReadWrite, 512, &small_lengths), Some(111.0));
    assert_eq!(calls(SendMethod::ReadWrite, 512, &[12_022_885]), Some(46_968.0));
    assert_eq!(calls(SendMethod::ReadWrite, 512, &[182_172_254; 2]), Some(1_423_227.0));
    assert_eq!(calls(SendMethod::Splice, 512, &small_lengths), None);
    if kelvin_sys::mapping::page_bytes() == 4096 {
        assert_eq!(calls(SendMethod::Mmap, WINDOW, &small_lengths), Some(41.0));
        assert_eq!(calls(SendMethod::Mmap, WINDOW, &[182_172_254; 2]), Some(16_683.0));
    }
}

#[test]
fn receiver_calls_include_segment_remainders() {
    let sending = send_options(SendMethod::ReadWrite, 512);
    let mut receiving = receive_options(ReceiveMethod::ReadWrite, 512);
    let lengths = [2412; 10];
    let calls = |receiving: &RawReceiveOptions, sending: &RawSendOptions| {
        TransferShape { lengths: &lengths, sending, receiving }.receiver_calls()
    };
    assert_eq!(calls(&receiving, &sending), Some((121.0, 141.0)));
    let per_file = RawSendOptions { connection: ConnectionLifetime::PerFile, reply: true, ..sending };
    assert_eq!(calls(&receiving, &per_file), Some((140.0, 160.0)));
    receiving.setup.method = ReceiveMethod::Mmap;
    assert_eq!(calls(&receiving, &sending), Some((61.0, 71.0)));
    let long_transfer = TransferShape { lengths: &[12_022_885], sending: &sending, receiving: &receiving };
    assert_eq!(long_transfer.receiver_calls(), None, "each call takes what has arrived of what is sent in small parts");
    receiving.setup.mode = Mode::Nonblocking;
    assert_eq!(calls(&receiving, &sending), None);
}

#[test]
fn only_mapped_ends_fault() {
    let faults = |send, receive, window| {
        let (mut sending, receiving) = (send_options(send, 512), receive_options(receive, 512));
        sending.setup.window = window;
        let transfer = TransferShape { lengths: &[12_022_885], sending: &sending, receiving: &receiving };
        (transfer.sender_faults(), transfer.receiver_pages())
    };
    if kelvin_sys::mapping::page_bytes() == 4096 {
        assert_eq!(faults(SendMethod::Mmap, ReceiveMethod::ReadWrite, 256), (Some((12.0, 184.0)), None));
        assert_eq!(faults(SendMethod::Mmap, ReceiveMethod::Mmap, 1), (Some((184.0, 184.0)), Some(2936.0)));
    }
    assert_eq!(faults(SendMethod::Sendfile, ReceiveMethod::Splice, 16), (None, None));
}
