use super::*;

/// Thousandths of the time of a transfer of 2 s.
const fn thousandths_of_transfer(thousandths: u64) -> u64 {
    thousandths * 2_000_000
}

/// One end: its CPU time, and what it waited for its files.
fn end_load(cpu: u64, file_wait: u64) -> EndLoad {
    let times = StageTimes {
        file_wait: thousandths_of_transfer(file_wait),
        file: thousandths_of_transfer(file_wait),
        ..StageTimes::default()
    };
    EndLoad { cpu: thousandths_of_transfer(cpu), times, ..EndLoad::default() }
}

fn summary(sender: EndLoad, receiver: EndLoad) -> TransferSummary {
    let sent = SenderReport {
        nanoseconds: thousandths_of_transfer(1000),
        failed: 0,
        load: sender,
        carried: None,
        expected: None,
        method: None,
        chosen: None,
        compression: None,
    };
    TransferSummary {
        moved: MovedFiles { files: 1, small_files: 0, hard_links: 0, amount: ByteCounts::from_sent(1_000_000_000) },
        settings: SessionSettings::DEFAULT,
        streams: 1,
        sent,
        received: ReceiverReport { since: 0, load: receiver, costs: None, unwritten_bytes: None, method: None },
    }
}

fn with_receiver(load: EndLoad, summary: TransferSummary) -> TransferSummary {
    TransferSummary { received: ReceiverReport { load, ..summary.received }, ..summary }
}

fn limit_sentence(sender: EndLoad, receiver: EndLoad) -> String {
    summary(sender, receiver).limit_sentence()
}

#[test]
fn limiting_stage_is_named() {
    let idle = end_load(100, 0);
    assert_eq!(
        limit_sentence(end_load(90, 910), idle),
        "limited by the source's disk, which was waited for 91 % of the time"
    );
    assert_eq!(
        limit_sentence(idle, end_load(50, 900)),
        "limited by the target's disk, which was waited for 90 % of the time"
    );
    let flushing =
        EndLoad { times: StageTimes { sync: thousandths_of_transfer(800), ..StageTimes::default() }, ..idle };
    assert!(limit_sentence(idle, flushing).starts_with("limited by the target's disk, "));
    let mut flush_limited = summary(idle, end_load(900, 0));
    flush_limited.settings.sync = true;
    flush_limited.received.since = thousandths_of_transfer(1500);
    flush_limited.received.load.times = StageTimes { sync: thousandths_of_transfer(1500), ..StageTimes::default() };
    assert_eq!(flush_limited.limit_sentence(), "limited by the target's disk, which was waited for 60 % of the time");
    assert!(flush_limited.to_string().ends_with("; flushed to the target's disk in 3.00 s more"), "{flush_limited}");
    let rate_limited = EndLoad {
        times: StageTimes { limit: thousandths_of_transfer(930), ..StageTimes::default() },
        ..end_load(50, 0)
    };
    assert_eq!(limit_sentence(rate_limited, idle), "held back by the limit that was set, 93 % of the time");
}

/// Ends that wait 90 % of 2 s, in which the connection carried as much as at 10 MB/s takes this many thousandths of that.
fn waiting_summary(link_share: u64, carried: LinkUsage) -> TransferSummary {
    let bytes = thousandths_of_transfer(link_share) / 100;
    let moved = MovedFiles { files: 1, small_files: 0, hard_links: 0, amount: ByteCounts::from_sent(bytes / 2) };
    let waiting = summary(end_load(100, 0), end_load(100, 0));
    let sent = SenderReport { carried: Some(LinkUsage { bytes, ..carried }), ..waiting.sent };
    TransferSummary { moved, sent, ..waiting }
}

const RATE: u64 = 10_000_000;

#[test]
fn full_and_idle_link_are_distinguished() {
    let usage = LinkUsage { link_rate: Some(RATE), ..LinkUsage::default() };
    let full_link = waiting_summary(970, usage);
    assert_eq!(full_link.limit_sentence(), "limited by the link, which was full 97 % of the time at 10.0 MB/s");
    // An end that works meanwhile does not make it less full; one that never waits for it is the limit.
    let works = with_receiver(end_load(550, 0), full_link);
    assert_eq!(works.limit_sentence(), full_link.limit_sentence());
    let busy = with_receiver(end_load(970, 0), full_link);
    assert!(busy.limit_sentence().starts_with("limited by the CPU of the receiver, "), "{}", busy.limit_sentence());
    let idle = waiting_summary(
        200,
        LinkUsage { response_wait: thousandths_of_transfer(780), answers: 2, round_trip: 50_000, ..usage },
    );
    assert_eq!(
        idle.limit_sentence(),
        "what limited it is not known: both ends waited 70 % of the time, the sender for answers 78 % of the time, and the link was idle \
         80 % of the time; kelvin study peer would measure the link alone"
    );
    assert!(full_link.is_predictable() && !idle.is_predictable());
    // Another stream, which was no faster, has carried some of it.
    let moved = MovedFiles { amount: ByteCounts::from_sent(thousandths_of_transfer(970) / 100), ..full_link.moved };
    let shared = TransferSummary { moved, ..waiting_summary(500, usage) };
    assert_eq!(shared.limit_sentence(), full_link.limit_sentence());
    let half = waiting_summary(500, usage);
    assert!(
        half.limit_sentence().starts_with("limited by no part alone: the link was the busiest, 50 %"),
        "{}",
        half.limit_sentence()
    );
}

#[test]
fn compression_says_what_it_gained() {
    let usage = LinkUsage { link_rate: Some(RATE), ..LinkUsage::default() };
    let full_link = waiting_summary(970, usage);
    // 60 MB of files in 2 s, which plain are 6 s of the link.
    let moved = MovedFiles { amount: ByteCounts::from_sent(60_000_000), ..full_link.moved };
    let report = CompressionReport {
        content: 60_000_000,
        sent: 19_400_000,
        level: 6,
        connection_rate: Some(1),
        ..CompressionReport::default()
    };
    let with_report = |report| TransferSummary {
        moved,
        sent: SenderReport { compression: Some(report), ..full_link.sent },
        ..full_link
    };
    let sentence = with_report(report).to_string();
    assert!(
        sentence.ends_with(
            ": 30.0 MB/s, encrypted, verified, compressed 3.1 times (zstd, level 6); limited by the link, which was full 97 % of the \
             time at 10.0 MB/s; sending it plain would have taken 3.0 times as long"
        ),
        "{sentence}"
    );
    // Of a pipe the kernel reports nothing, but the sender has waited for it.
    let mut through_pipe = with_report(CompressionReport { connection_rate: Some(RATE / 2), ..report });
    through_pipe.sent.carried = None;
    assert!(
        through_pipe.to_string().ends_with("; sending it plain would have taken 6.0 times as long"),
        "{through_pipe}"
    );
    let busy = with_receiver(end_load(970, 0), with_report(report)).to_string();
    assert!(busy.contains("compressed 3.1 times") && !busy.contains("sending it plain"), "{busy}");
    let plain = CompressionReport { sent: 60_000_000, level: 0, ..report };
    let too_slow = with_report(plain).to_string();
    assert!(
        too_slow.contains(", not compressed: the connection takes it faster than it can be compressed; "),
        "{too_slow}"
    );
    let noise = CompressionReport { incompressible: 59_000_000, ..plain };
    assert!(with_report(noise).to_string().contains(", not compressed: it does not get smaller; "));
    let compressing = EndLoad {
        times: StageTimes { compress: thousandths_of_transfer(600), ..StageTimes::default() },
        ..end_load(950, 0)
    };
    assert!(limit_sentence(compressing, end_load(50, 0)).ends_with(", most of it compressing"));
    assert!(limit_sentence(end_load(50, 0), compressing).ends_with(", most of it decompressing"));
}

#[test]
fn losses_and_full_link_are_distinguished() {
    let usage = LinkUsage { link_rate: Some(RATE), segments: 5000, round_trip: 40_000_000, ..LinkUsage::default() };
    let sentence = |retransmitted, link_round_trip| {
        waiting_summary(970, LinkUsage { retransmitted, link_round_trip, ..usage }).limit_sentence()
    };
    let full_link_text = "limited by the link, which was full 97 % of the time at 10.0 MB/s";
    assert_eq!(sentence(4, 41_000_000), full_link_text);
    assert_eq!(sentence(60, 55_000_000), format!("{full_link_text}; 1.20 % of the segments were retransmitted"));
    assert_eq!(
        sentence(60, 41_000_000),
        "limited by losses on the link, or by a limit of its rate that drops what is above it, 97 % of the time: 1.20 % of the segments \
         were retransmitted, and round trips took 41.0 ms, no longer than without a queue (40.0 ms)"
    );
    // Its rate is not known, since it went up and down.
    let unknown = LinkUsage {
        link_rate: None,
        retransmitted: 60,
        link_round_trip: 41_000_000,
        busy: thousandths_of_transfer(950),
        ..usage
    };
    assert!(
        waiting_summary(970, unknown)
            .limit_sentence()
            .starts_with("limited by losses on the link, or by a limit of its rate ")
    );
    let rarely = waiting_summary(970, LinkUsage { busy: thousandths_of_transfer(300), ..unknown }).limit_sentence();
    assert!(rarely.starts_with("what limited it is not known: "), "{rarely}");
}

#[test]
fn link_rate_needs_unlimited_moment() {
    let without_rate = waiting_summary(800, LinkUsage::default());
    let words = "what limited it is not known: both ends waited 90 % of the time, the sender for answers 0 % of the time, and the rate \
                 of the link is not known; kelvin study peer would measure the link alone";
    assert_eq!(without_rate.limit_sentence(), words);
    assert!(!without_rate.is_predictable());
    // An end that always works is the limit, no matter what the link can.
    let slow = with_receiver(end_load(900, 0), waiting_summary(1000, LinkUsage::default()));
    assert!(slow.limit_sentence().starts_with("limited by the CPU of the receiver, "), "{}", slow.limit_sentence());
}

#[test]
fn response_waits_are_named_round_trips() {
    let usage = LinkUsage {
        answers: 40,
        round_trip: thousandths_of_transfer(20),
        response_wait: thousandths_of_transfer(850),
        link_rate: Some(RATE),
        ..LinkUsage::default()
    };
    assert_eq!(
        waiting_summary(100, usage).limit_sentence(),
        "limited by round trips: the sender waited for 40 answers, each of which takes 40.0 ms or more; the link was idle 90 % of \
         the time"
    );
    let unknown = summary(end_load(100, 0), end_load(100, 0));
    assert_eq!(
        unknown.limit_sentence(),
        "limited by the connection, for which both ends waited 90 % of the time; nothing more is known of it"
    );
    assert!(!unknown.is_predictable());
}

#[test]
fn full_window_or_buffer_is_named() {
    let usage = LinkUsage { round_trip: 40_000_000, busy: thousandths_of_transfer(990), ..LinkUsage::default() };
    let window = LinkUsage { window_limited: thousandths_of_transfer(850), window: 4 << 20, ..usage };
    let words = "limited by the receiver's window: 4.00 MiB over 40.0 ms, full 85 % of the time";
    assert_eq!(waiting_summary(300, window).limit_sentence(), words);
    // What it lets through is not what the link can.
    let window = waiting_summary(990, window);
    assert_eq!(window.limit_sentence(), words);
    let older = waiting_summary(990, LinkUsage { window_limited: thousandths_of_transfer(850), ..usage });
    assert_eq!(older.limit_sentence(), "limited by the receiver's window, over 40.0 ms, full 85 % of the time");
    let buffer = waiting_summary(
        300,
        LinkUsage {
            buffer_limited: thousandths_of_transfer(700),
            window_limited: thousandths_of_transfer(100),
            buffer: 200 << 10,
            ..usage
        },
    );
    assert_eq!(buffer.limit_sentence(), "limited by the sender's buffer: 200 KiB over 40.0 ms, full 80 % of the time");
    // A receiver that does not read fills it as well.
    let slow = with_receiver(end_load(50, 900), window);
    assert!(slow.limit_sentence().starts_with("limited by the target's disk, "), "{}", slow.limit_sentence());
}

#[test]
fn multi_stream_link_uses_first_stream() {
    let several = TransferSummary {
        streams: 4,
        ..waiting_summary(
            250,
            LinkUsage { busy: thousandths_of_transfer(950), link_rate: Some(RATE), ..LinkUsage::default() },
        )
    };
    assert_eq!(several.limit_sentence(), "limited by the link, for which both ends waited 90 % of the time");
    // All of them are busy at once, and a window holds each back for a fifth of that.
    let carried = LinkUsage {
        busy: 4 * thousandths_of_transfer(950),
        window_limited: 4 * thousandths_of_transfer(190),
        link_rate: Some(RATE),
        ..LinkUsage::default()
    };
    let several = TransferSummary { streams: 4, ..waiting_summary(250, carried) };
    assert!((several.window_full_share() - 0.2).abs() < 1e-9, "{}", several.window_full_share());
    assert!(several.limit_sentence().starts_with("limited by the link, "), "{}", several.limit_sentence());
    // What holds neither back need not be the link, where that was never seen to.
    let unseen = TransferSummary {
        streams: 4,
        ..waiting_summary(250, LinkUsage { busy: thousandths_of_transfer(950), ..LinkUsage::default() })
    };
    assert!(
        unseen
            .limit_sentence()
            .starts_with("what limited it is not known: both ends waited 90 % of the time, the sender for answers 0 %")
            && unseen.limit_sentence().contains("and the rate of the link is not known; "),
        "{}",
        unseen.limit_sentence()
    );
}

#[test]
fn running_and_runnable_ends_are_distinguished() {
    let idle = end_load(400, 0);
    let times = |times: [u64; 4]| {
        let [file, verify, cipher, connection] = times.map(thousandths_of_transfer);
        StageTimes { file, verify, cipher, connection, ..StageTimes::default() }
    };
    let busy = EndLoad { times: times([200, 300, 250, 250]), ..end_load(970, 0) };
    assert_eq!(
        limit_sentence(busy, idle),
        "limited by the CPU of the sender, busy 97 % of the time, most of it hashing"
    );
    let busy = EndLoad { times: times([200, 100, 0, 700]), ..end_load(970, 0) };
    assert_eq!(
        limit_sentence(idle, busy),
        "limited by the CPU of the receiver, busy 97 % of the time, most of it receiving"
    );
    let throttled =
        EndLoad { ready: thousandths_of_transfer(550), throttled: thousandths_of_transfer(700), ..end_load(400, 0) };
    assert_eq!(
        limit_sentence(throttled, idle),
        "limited by the CPU quota of the sender, which kept it from running 55 % of the time"
    );
    let crowded = EndLoad { ready: thousandths_of_transfer(500), ..end_load(450, 300) };
    assert_eq!(
        limit_sentence(idle, crowded),
        "limited by the CPU of the receiver, which other work had 50 % of the time"
    );
}

#[test]
fn each_storage_kind_has_own_wording() {
    let sentence = |storage| {
        let waits = EndLoad { storage, ..end_load(50, 900) };
        limit_sentence(end_load(100, 0), waits)
    };
    assert!(sentence(StorageKind::Pipe).starts_with("limited by what reads the receiver's standard output, which was"));
    assert!(sentence(StorageKind::Served).starts_with("limited by the server of the target's file system, "));
}

#[test]
fn sentence_has_amount_rate_and_limit() {
    let slow = summary(end_load(300, 0), end_load(50, 900));
    assert_eq!(
        slow.to_string(),
        "moved 1 file, 954 MiB, in 2.00 s from connecting to the last byte: 500 MB/s, encrypted, verified; limited by the \
         target's disk, which was waited for 90 % of the time"
    );
    let expected = Some(RatePrediction { low: 1_000_000_000, rate: 1_500_000_000, high: 1_800_000_000 });
    let method = Some(SendMethod::Sendfile);
    let sent = SenderReport { expected, method, ..slow.sent };
    let received = ReceiverReport { unwritten_bytes: Some(700 << 20), ..slow.received };
    let with_prediction = TransferSummary { sent, received, ..slow }.to_string();
    assert!(with_prediction.contains(", encrypted, verified, by sendfile; limited by "), "{with_prediction}");
    let received = ReceiverReport { method: Some(ReceiveMethod::Splice), ..slow.received };
    let both_methods = TransferSummary { sent: SenderReport { method, ..slow.sent }, received, ..slow }.to_string();
    assert!(both_methods.contains(", verified, by sendfile, received by splice; limited by "), "{both_methods}");
    assert!(with_prediction.contains(": 500 MB/s (1.00 to 1.80 GB/s predicted), encrypted, "), "{with_prediction}");
    assert_eq!(range_text(&RatePrediction { low: 999_900_000, rate: 1, high: 123_456 }), "1.00 GB/s to 120 kB/s");
    let split = TransferSummary { streams: 4, ..slow }.to_string();
    assert!(split.contains(": 500 MB/s, over 4 streams, encrypted, "), "{split}");
    let chosen = Some(StreamChoice { streams: 4, thousandths: 3120, no_faster: Some(8) });
    let faster = TransferSummary { streams: 4, sent: SenderReport { chosen, ..slow.sent }, ..slow }.to_string();
    assert!(faster.contains(", over 4 streams (3.1 times the rate of one, 8 no faster), encrypted, "), "{faster}");
    let chosen = Some(StreamChoice { streams: 1, thousandths: 1000, no_faster: Some(2) });
    let single = TransferSummary { sent: SenderReport { chosen, ..slow.sent }, ..slow }.to_string();
    assert!(single.contains(": 500 MB/s, over one stream (2 were no faster), encrypted, "), "{single}");
    let settings = SessionSettings { connection: ConnectionLifetime::PerFile, ..SessionSettings::DEFAULT };
    let per_file = TransferSummary { settings, ..slow }.to_string();
    assert!(per_file.contains(": 500 MB/s, over a connection for each file, encrypted, "), "{per_file}");
    assert!(
        with_prediction.ends_with(" % of the time; up to 700 MiB not yet on the target's disk"),
        "{with_prediction}"
    );
    let amount = ByteCounts { holes: 1 << 20, resumed: 3 << 20, moved: 4 << 20 };
    let partly = TransferSummary { moved: MovedFiles { amount, ..slow.moved }, ..slow };
    assert!(partly.to_string().starts_with("moved 1 file, 8 MiB (3 MiB there from before, 1 MiB of holes), in 2.00 s"));
    let moved = MovedFiles { files: 3, ..slow.moved };
    let settings = SessionSettings { verify: false, ..SessionSettings::DEFAULT };
    let even = TransferSummary { moved, settings, ..summary(end_load(500, 0), end_load(550, 0)) }.to_string();
    let words = "not verified; limited by no part alone: the CPU of the receiver was the busiest, 55 % of the time";
    assert!(even.ends_with(words) && even.starts_with("moved 3 files, "), "{even}");
}

/// The other end's figures are its own, and may be anything.
#[test]
fn extreme_figures_are_handled() {
    let max = u64::MAX;
    let times = StageTimes {
        file: max,
        file_wait: max,
        verify: max,
        compress: max,
        cipher: max,
        connection: max,
        sync: max,
        limit: max,
    };
    let largest = EndLoad { times, cpu: max, ready: max, throttled: max, storage: StorageKind::Disk };
    for load in [EndLoad::default(), largest] {
        for (largest, streams) in [(None, 1), (Some(0), 1), (Some(max), 2)] {
            let carried = LinkUsage {
                bytes: max,
                busy: max,
                window_limited: max,
                buffer_limited: max,
                window: max,
                buffer: max,
                link_rate: largest,
                round_trip: max,
                link_round_trip: max,
                segments: max,
                retransmitted: max,
                answers: max,
                response_wait: max,
            };
            let mut extreme = TransferSummary { streams, ..summary(load, load) };
            (extreme.sent.nanoseconds, extreme.sent.carried) = (0, Some(carried));
            let shares = extreme.stages().into_iter().chain(extreme.utilisation());
            assert!(shares.into_iter().all(|share| (0.0..=1.0).contains(&share.share)), "{extreme}");
        }
    }
}
