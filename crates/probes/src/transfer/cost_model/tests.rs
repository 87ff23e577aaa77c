//! Exact arithmetic on made-up costs.

use std::time::Duration;

use kelvin_transfer::raw_protocol::RawReceiveLimits;

use super::*;

fn linear_curve(at_none: f64, each: f64) -> CostCurve {
    CostCurve::new(vec![(0.0, at_none), (1e9, at_none + each * 1e9)])
}

/// Costs in round figures: a call of a socket takes 100 ns, a byte of it nothing.
fn costs() -> TransferCosts {
    TransferCosts {
        connect: 10_000.0,
        reconnect: 5_000.0,
        wake: 20_000.0,
        waking: 15_000.0,
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
        cleared: 0.0,
        fault: 1_000.0,
        create: 8_000.0,
        block: linear_curve(400.0, 0.0),
        grown: LongFileCost { lengths: [1e6, 2e6], more: linear_curve(0.0, 0.0) },
        mapped: linear_curve(20_000.0, 1.0),
        mapped_window: 1_048_576.0,
        referred: None,
        request: None,
    }
}

fn sending(method: SendMethod, buffer: usize) -> RawSendOptions {
    let setup = SendSetup {
        method,
        mode: if method == SendMethod::Uring { Mode::Uring } else { Mode::Blocking },
        buffer,
        window: 16,
        timeout: Duration::from_secs(1),
    };
    RawSendOptions { setup, connection: ConnectionLifetime::Persistent, reply: false, digest: false }
}

fn receiving(method: ReceiveMethod, buffer: usize) -> RawReceiveOptions {
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
    let at = |bytes: f64| curve.cost_at(bytes).round();
    assert_eq!([0.0, 64.0, 2080.0, 4096.0, 34_816.0, 65_536.0].map(at), [200.0, 200.0, 250.0, 300.0, 1300.0, 2300.0]);
    assert_eq!(at(126_976.0), 4300.0);
    // Two of 4096 bytes and one of 2080.
    assert_eq!(curve.calls_cost(2.0 * 4096.0 + 2080.0, 4096.0).round(), 850.0);
}

#[test]
fn slower_end_sets_time() {
    let (sending, receiving) = (sending(SendMethod::ReadWrite, 512), receiving(ReceiveMethod::ReadWrite, 512));
    let transfer = TransferShape { lengths: &[512 * 1000], sending: &sending, receiving: &receiving };
    let expected = transfer.expected_transfer(&costs());
    // 1000 reads and sends of 300 ns, opening, header and packet; 1000 of 500 ns, two of framing, and the file.
    assert_eq!(expected.sender, 300_000.0 + 700.0 + 100.0 + 1_200.0);
    assert_eq!(expected.receiver, 500_000.0 + 200.0 + 8_000.0);
    // Connecting, waking, and what the sender does for the first of eight segments.
    assert_eq!((expected.wakes, expected.alone), (0.0, 30_000.0 + 302_000.0 / 8.0));
    assert_eq!(expected.time, expected.alone + expected.receiver);
}

#[test]
fn slow_sender_wakes_receiver_per_segment() {
    let (sending, receiving) = (sending(SendMethod::ReadWrite, 512), receiving(ReceiveMethod::Mmap, 1 << 20));
    let transfer = TransferShape { lengths: &[512 * 1000], sending: &sending, receiving: &receiving };
    let costs = TransferCosts { mapped: linear_curve(20_000.0, 0.0), ..costs() };
    let expected = transfer.expected_transfer(&costs);
    // The receiver takes 20 us, two calls of framing and eight of segments; the sender is 35 us a segment slower.
    assert_eq!(expected.receiver, 20_000.0 + 200.0 + 800.0);
    assert_eq!((expected.wakes, expected.sender), (8.0, 302_000.0 + 8.0 * 15_000.0));
    assert_eq!(expected.time, 30_000.0 + 21_000.0 / 8.0 + expected.sender);
}

#[test]
fn cross_cpu_lines_cost_both_ends() {
    let (sending, receiving) = (sending(SendMethod::ReadWrite, 512), receiving(ReceiveMethod::ReadWrite, 512));
    let transfer = TransferShape { lengths: &[64_000], sending: &sending, receiving: &receiving };
    let slow_sender = |line| TransferCosts { line, read: self::linear_curve(600.0, 0.0), ..costs() };
    let (none, some) = (transfer.expected_transfer(&slow_sender(0.0)), transfer.expected_transfer(&slow_sender(20.0)));
    // 125 calls of 8 lines each: one is waited for, and the others arrive ten at a time.
    assert_eq!((some.sender - none.sender, some.receiver - none.receiver), (4_250.0, 4_250.0));
    // A sender that is ahead waits, and finds none of its lines with the other CPU.
    let (none, some) =
        (transfer.expected_transfer(&costs()), transfer.expected_transfer(&TransferCosts { line: 20.0, ..costs() }));
    assert_eq!((some.sender - none.sender, some.receiver - none.receiver), (0.0, 4_250.0));
    // One that would be ahead but for them never fills its buffer.
    let long_blocks = self::receiving(ReceiveMethod::ReadWrite, 65_536);
    let transfer = TransferShape { receiving: &long_blocks, ..transfer };
    let close = |line| {
        let costs = TransferCosts {
            line,
            read: self::linear_curve(380.0, 0.0),
            block: self::linear_curve(70_000.0, 0.0),
            ..costs()
        };
        transfer.expected_transfer(&costs)
    };
    let (none, some) = (close(0.0), close(200.0));
    assert!(none.sender < none.receiver && some.sender > some.receiver, "{none:?} {some:?}");
    let waking = |expected: ExpectedTransfer| expected.wakes * 15_000.0;
    assert!((some.sender - waking(some) - none.sender - 42_500.0).abs() < 1e-6, "{some:?}");
}

#[test]
fn long_file_blocks_cost_more() {
    let (sending, receiving) = (sending(SendMethod::ReadWrite, 65_536), receiving(ReceiveMethod::ReadWrite, 65_536));
    let grown = LongFileCost { lengths: [1e6, 3e6], more: linear_curve(0.0, 0.001) };
    let longer = |bytes: u64| {
        let transfer = TransferShape { lengths: &[bytes], sending: &sending, receiving: &receiving };
        let of = |costs: &TransferCosts| transfer.expected_transfer(costs).receiver;
        (of(&TransferCosts { grown: grown.clone(), ..costs() }) - of(&costs())).round()
    };
    assert_eq!([1_000_000, 2_000_000, 3_000_000, 6_000_000].map(longer), [0.0, 1_000.0, 3_000.0, 6_000.0]);
}

#[test]
fn buffer_clearing_overlaps_wake_up() {
    let (sending, receiving) = (sending(SendMethod::ZeroCopy, 65_536), receiving(ReceiveMethod::ReadWrite, 1 << 20));
    let transfer = TransferShape { lengths: &[1], sending: &sending, receiving: &receiving };
    let alone = |cleared| transfer.expected_transfer(&TransferCosts { cleared, ..costs() }).alone;
    // 64 buffers of the sender, and one of the receiver.
    let (sender, receiver) = ((4 << 20) as f64, (1 << 20) as f64);
    let receiver_is_last = 1e-3;
    assert!((alone(receiver_is_last) - alone(0.0) - receiver_is_last * receiver).abs() < 1e-6);
    let sender_is_last = 1e-1;
    assert!((alone(sender_is_last) - alone(0.0) - sender_is_last * sender).abs() < 1e-6);
}

#[test]
fn connections_replies_windows_add_cost() {
    let (mut sending, mut receiving) = (sending(SendMethod::Mmap, WINDOW), receiving(ReceiveMethod::Mmap, WINDOW));
    let lengths = [WINDOW as u64 * 3; 4];
    let of = |sending: &RawSendOptions, receiving: &RawReceiveOptions| {
        TransferShape { lengths: &lengths, sending, receiving }.expected_transfer(&costs())
    };
    let once = of(&sending, &receiving);
    // Three windows and mapping away the last, three faults and three sends for each file; at the receiver two more windows than one of 1 MiB, and four
    // segments.
    assert_eq!(once.sender, 4.0 * (3.0 * 3_100.0 + 2_000.0 + 2_000.0));
    assert_eq!(once.receiver, 4.0 * (20_000.0 + 3.0 * WINDOW as f64 + 2.0 * 2_000.0 + 400.0 + 200.0));
    (sending.connection, receiving.connection) = (ConnectionLifetime::PerFile, ConnectionLifetime::PerFile);
    assert_eq!(of(&sending, &receiving).receiver, once.receiver + 3.0 * 5_000.0);
    sending.connection = ConnectionLifetime::Persistent;
    sending.reply = true;
    let replied = of(&sending, &receiving);
    assert!((replied.time - once.time - 4.0 * 60_000.0 - 3.0 * once.sender / 16.0).abs() < 1e-6, "{replied:?}");
}

#[test]
fn ring_and_reference_add_costs() {
    let (ring, receiving) = (sending(SendMethod::Uring, 65_536), receiving(ReceiveMethod::Uring, 65_536));
    let lengths = [655_360];
    let transfer = TransferShape { lengths: &lengths, sending: &ring, receiving: &receiving };
    let (calls, requests) = (
        transfer.expected_transfer(&costs()),
        transfer.expected_transfer(&TransferCosts { request: Some(150.0), ..costs() }),
    );
    assert_eq!((requests.sender - calls.sender, requests.receiver - calls.receiver), (3_000.0, 3_000.0));
    let sendfile = sending(SendMethod::Sendfile, 65_536);
    let transfer = TransferShape { lengths: &lengths, sending: &sendfile, receiving: &receiving };
    let expected = transfer.expected_transfer(&TransferCosts { referred: Some(0.5), ..costs() });
    assert_eq!(expected.sender - expected.wakes * 15_000.0, 163_840.0 + 2_000.0, "half of it at either end");
    let zero_copy = sending(SendMethod::ZeroCopy, 65_536);
    let of = |referred| {
        let transfer = TransferShape { lengths: &lengths, sending: &zero_copy, receiving: &receiving };
        transfer.expected_transfer(&TransferCosts { referred, ..costs() }).receiver
    };
    assert_eq!(of(Some(0.5)) - of(None), 163_840.0, "copied when it arrives, by either end");
}

#[test]
fn published_cells_have_known_sender_calls() {
    let of = |method, buffer, lengths: &[u64]| {
        let (sending, receiving) = (sending(method, buffer), receiving(ReceiveMethod::ReadWrite, 512));
        TransferShape { lengths, sending: &sending, receiving: &receiving }.sender_calls()
    };
    let small: Vec<u64> = [[2412; 4].as_slice(), &[2411; 6]].concat();
    // As counted: a header for each file, an end marker, and two calls a buffer or three a window.
    assert_eq!(of(SendMethod::ReadWrite, 512, &small), Some(111.0));
    assert_eq!(of(SendMethod::ReadWrite, 512, &[12_022_885]), Some(46_968.0));
    assert_eq!(of(SendMethod::ReadWrite, 512, &[182_172_254; 2]), Some(1_423_227.0));
    assert_eq!(of(SendMethod::Splice, 512, &small), None);
    if kelvin_sys::mapping::page_bytes() == 4096 {
        assert_eq!(of(SendMethod::Mmap, WINDOW, &small), Some(41.0));
        assert_eq!(of(SendMethod::Mmap, WINDOW, &[182_172_254; 2]), Some(16_683.0));
    }
}

#[test]
fn receiver_calls_include_segment_remainders() {
    let sending = sending(SendMethod::ReadWrite, 512);
    let mut receiving = receiving(ReceiveMethod::ReadWrite, 512);
    let lengths = [2412; 10];
    let calls = |receiving: &RawReceiveOptions, sending: &RawSendOptions| {
        TransferShape { lengths: &lengths, sending, receiving }.receiver_calls()
    };
    assert_eq!(calls(&receiving, &sending), Some((121.0, 141.0)));
    let per_file = RawSendOptions { connection: ConnectionLifetime::PerFile, reply: true, ..sending };
    assert_eq!(calls(&receiving, &per_file), Some((140.0, 160.0)));
    receiving.setup.method = ReceiveMethod::Mmap;
    assert_eq!(calls(&receiving, &sending), Some((61.0, 71.0)));
    let long = TransferShape { lengths: &[12_022_885], sending: &sending, receiving: &receiving };
    assert_eq!(long.receiver_calls(), None, "each call takes what has arrived of what is sent in small parts");
    receiving.setup.mode = Mode::Nonblocking;
    assert_eq!(calls(&receiving, &sending), None);
}

#[test]
fn only_mapped_ends_fault() {
    let of = |send, receive, window| {
        let (mut sending, receiving) = (sending(send, 512), receiving(receive, 512));
        sending.setup.window = window;
        let transfer = TransferShape { lengths: &[12_022_885], sending: &sending, receiving: &receiving };
        (transfer.sender_faults(), transfer.receiver_pages())
    };
    if kelvin_sys::mapping::page_bytes() == 4096 {
        assert_eq!(of(SendMethod::Mmap, ReceiveMethod::ReadWrite, 256), (Some((12.0, 184.0)), None));
        assert_eq!(of(SendMethod::Mmap, ReceiveMethod::Mmap, 1), (Some((184.0, 184.0)), Some(2936.0)));
    }
    assert_eq!(of(SendMethod::Sendfile, ReceiveMethod::Splice, 16), (None, None));
}
