//! Files that the programs themselves wrote, whole and mutated.

use jiff::Timestamp;
use kelvin_core::{Readings, RoundOutcome, Run};
use kelvin_store::foreign::{Error, ImportInfo, Tool};

const FILES: [(Tool, &str); 8] = [
    (Tool::Lmbench, include_str!("data/lmbench.out")),
    (Tool::Fio, include_str!("data/fio.json")),
    (Tool::Iperf3, include_str!("data/iperf3.json")),
    (Tool::Iperf3, include_str!("data/iperf3-reverse.json")),
    (Tool::Iperf3, include_str!("data/iperf3-udp.json")),
    (Tool::Sysbench, include_str!("data/sysbench-fileio.txt")),
    (Tool::Sysbench, include_str!("data/sysbench-cpu.txt")),
    (Tool::Sysbench, include_str!("data/sysbench-memory.txt")),
];

fn read(tool: Tool, file: &[u8]) -> Result<Run, Error> {
    tool.read(file, &ImportInfo { written: Timestamp::UNIX_EPOCH, kelvin: "0.1.0" })
}

/// What a run holds, a line each, or why there is none.
fn result_text(run: &Result<Run, Error>) -> String {
    let run = match run {
        Ok(run) => run,
        Err(error) => return error.to_string(),
    };
    let foreign = run.header.foreign.as_ref().unwrap();
    let machine = &run.header.machine;
    let mut lines = vec![format!(
        "{} {} at {} on {} with {:?} at {:?}",
        foreign.tool,
        foreign.version,
        run.header.started,
        machine.architecture,
        machine.kernel.release.get(),
        machine.cpu.measured_hz.get()
    )];
    lines.extend(values(run).map(|(name, value)| format!("{name} = {value}")));
    lines.extend(run.notes.clone());
    lines.join("\n")
}

fn values(run: &Run) -> impl Iterator<Item = (String, f64)> + '_ {
    run.measurements.iter().flat_map(|measurement| {
        let RoundOutcome::Measured(readings) = &measurement.rounds[0].outcome else { panic!("{measurement:?}") };
        readings.iter().map(move |reading| {
            let Readings::Scalars(values) = &reading.readings else { panic!("{reading:?}") };
            (format!("{} {}", reading.metric, measurement.planned.case), values[0])
        })
    })
}

#[test]
fn each_file_gives_metrics_and_omissions() {
    let texts: Vec<String> = FILES.iter().map(|(tool, file)| result_text(&read(*tool, file.as_bytes()))).collect();
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn only_its_tool_recognizes_a_file() {
    for (tool, file) in FILES {
        assert_eq!(Tool::detect(file.as_bytes()), Some(tool));
        for other in Tool::ALL.into_iter().filter(|other| *other != tool) {
            assert!(matches!(read(other, file.as_bytes()), Err(Error::NotOf { .. })), "{other:?} of {tool:?}");
        }
        // Behind something else it is a quotation.
        assert_eq!(Tool::detect(format!("see:\n{file}").as_bytes()), None);
    }
    let foreign_texts = ["", "{}", "[]", "null", "{\"format\": 1}", "sysbench 1.0", "fio-3.33", "{\"fio version\": 3}"];
    assert!(foreign_texts.iter().all(|text| Tool::detect(text.as_bytes()).is_none()));
    assert_eq!(Tool::detect(&[0xff, 0xfe]), None);
}

#[test]
fn surrounding_text_is_ignored_by_its_tool() {
    for (tool, file) in FILES {
        let expected = result_text(&read(tool, file.as_bytes()));
        // Of sysbench's and lmbench's text nobody knows where it ends.
        let suffix = if matches!(tool, Tool::Fio | Tool::Iperf3) { "\nend: { of it }\n" } else { "" };
        let surrounded = format!("\u{feff}warning: {{ a }}\nand {}\n{file}{suffix}", tool.name());
        assert_eq!(Tool::detect(surrounded.as_bytes()), None);
        assert_eq!(Tool::detect_quoted(surrounded.as_bytes()), Some(tool));
        assert_eq!(result_text(&read(tool, surrounded.as_bytes())), expected, "{tool:?}");
        let doubled = read(tool, format!("{file}\n{file}").as_bytes());
        assert!(matches!(&doubled, Err(Error::NotOf { problem, .. }) if problem.contains("2 results")), "{doubled:?}");
    }
    let quoted = [&b"iperf 3"[..], b"{\"format\": 1}", b"", b"see fio-3.33"];
    assert!(quoted.iter().all(|file| Tool::detect_quoted(file).is_none()));
}

/// A client's file of iperf3 3.16 with parts replaced.
fn iperf3(replacements: &[(&str, &str)]) -> Result<Run, Error> {
    let text = r#"{"start": {"connected": [{"local_host": "192.0.2.1", "remote_host": "192.0.2.2"}], "version": "iperf 3.16",
        "system_info": "Linux host 6.1.0 #1 SMP x86_64", "timestamp": {"timesecs": 1700000000}, "sock_bufsize": 0,
        "connecting_to": {"host": "192.0.2.2"}, "test_start": {"protocol": "TCP", "num_streams": 1, "blksize": 131072,
        "duration": 10, "bytes": 0, "blocks": 0, "reverse": 0, "tos": 0, "target_bitrate": 0, "bidir": 0, "fqrate": 0}},
        "end": {"sum_received": {"seconds": 10, "bits_per_second": 8e9}}}"#;
    let modified_text = replacements.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    read(Tool::Iperf3, modified_text.as_bytes())
}

#[test]
fn other_iperf3_work_is_not_a_stream() {
    let metric_names = |run: Result<Run, Error>| values(&run.unwrap()).map(|(name, _)| name).collect::<Vec<_>>();
    let to_agent = ["net.peer.bandwidth direction=to_agent streams=1"];
    let from_agent = ["net.peer.bandwidth direction=from_agent streams=1"];
    assert_eq!(metric_names(iperf3(&[])), to_agent);
    assert_eq!(metric_names(iperf3(&[("\"reverse\": 0", "\"reverse\": 1")])), from_agent);
    // The server receives what the client sends, and does not know its source.
    let server = ("connecting_to", "accepted_connection");
    assert_eq!(metric_names(iperf3(&[server])), ["net.peer.bandwidth.perhaps_limited direction=from_agent streams=1"]);
    for (part, replacement, reason) in [
        ("\"bidir\": 0", "\"bidir\": 1", "both directions"),
        ("\"end\": {", "\"end\": {\"sum_received_bidir_reverse\": {},", "both directions"),
        ("{\"local_host\"", "{\"local_host\":\"a\",\"remote_host\":\"b\"},{\"local_host\"", "both directions"),
        ("\"sock_bufsize\": 0", "\"sock_bufsize\": 8192", "--window"),
        ("131072", "64", "--length"),
        ("\"blksize\": 131072,", "", "--length"),
        ("\"bytes\": 0", "\"bytes\": 10240", "--bytes"),
        ("\"blocks\": 0", "\"blocks\": 3", "--bytes"),
        ("\"sock_bufsize\"", "\"tcp_mss\": 500, \"sock_bufsize\"", "--set-mss"),
        ("\"tos\": 0", "\"tos\": 8", "--tos"),
        ("\"target_bitrate\": 0", "\"target_bitrate\": 10000000", "--bitrate"),
        ("\"sock_bufsize\"", "\"target_bitrate\": 10000000, \"sock_bufsize\"", "--bitrate"),
        ("\"fqrate\": 0", "\"fqrate\": 10000000", "--bitrate"),
        ("\"seconds\": 10", "\"seconds\": 4", "ended before"),
        ("\"duration\": 10", "\"duration\": 0", "within half a second"),
        ("\"TCP\"", "\"UDP\"", "UDP"),
        ("192.0.2.2", "192.0.2.1", "within one host"),
        ("192.0.2.2", "127.3.0.1", "within one host"),
        ("192.0.2.1", "::1", "within one host"),
        ("192.0.2.2", "::ffff:127.0.0.2", "within one host"),
        ("\"end\": {", "\"end\": {\"streams\": [{\"sender\": {}, \"diskfile\": {\"sent\": 7}}],", "--file"),
        ("\"end\": {", "\"end\": {\"diskfile\": {},", "--file"),
        (", \"bits_per_second\": 8e9", ", \"bits_per_second\": 0", "its value is 0"),
        ("\"connecting_to\": {\"host\": \"192.0.2.2\"},", "", "whose it is"),
        ("\"sum_received\"", "\"sum_sent\"", "sum_received is missing"),
        ("\"seconds\": 10, ", "", "seconds is missing"),
        ("{\"start\"", "{\"error\": \"interrupt\", \"start\"", "test failed"),
    ] {
        let replacements = if reason.contains("half a second") {
            vec![(part, replacement), ("\"seconds\": 10", "\"seconds\": 0.3")]
        } else {
            vec![(part, replacement)]
        };
        let error = iperf3(&replacements).unwrap_err().to_string();
        assert!(error.contains(reason) && !error.contains('\n'), "{replacement}: {error}");
    }
    let error = iperf3(&[server, ("\"reverse\": 0", "\"reverse\": 1")]).unwrap_err().to_string();
    assert!(error.contains("import the client's file"), "{error}");
}

#[test]
fn possibly_limited_iperf3_is_separate_metric() {
    let has_note = |run: &Run, option: &str| run.notes.iter().any(|note| note.contains(option));
    assert!(!has_note(&iperf3(&[]).unwrap(), "--fq-rate"));
    for (part, option) in [
        ("\"target_bitrate\": 0, ", "--bitrate"),
        ("\"sock_bufsize\": 0,", "--window"),
        (", \"fqrate\": 0", "--fq-rate"),
    ] {
        let run = iperf3(&[(part, "")]).unwrap();
        assert!(has_note(&run, option), "{:?}", run.notes);
        let metric_names: Vec<String> = values(&run).map(|(name, _)| name).collect();
        assert_eq!(metric_names, ["net.peer.bandwidth.perhaps_limited direction=to_agent streams=1"], "{part}");
        assert_eq!(run.header.machine.architecture, *"x86_64");
    }
    let uname =
        iperf3(&[("\"target_bitrate\": 0, ", ""), ("SMP x86_64", "SMP x86_64 x86_64 x86_64 GNU/Linux\\n")]).unwrap();
    assert_eq!(uname.header.machine.architecture, *"x86_64");
}

#[test]
fn iperf3_json_stream_equals_json() {
    let event = |name: &str, data: &str| format!("{{\"event\":\"{name}\",\"data\":{data}}}\n");
    let start = event("start", r#"{"connected":[{"local_host":"192.0.2.1","remote_host":"192.0.2.2"}],"version":"iperf 3.17",
        "connecting_to":{},"sock_bufsize":0,"test_start":{"protocol":"TCP","num_streams":2,"blksize":131072,"duration":10,
        "target_bitrate":0,"fqrate":0}}"#.replace('\n', "").as_str());
    let end = event("end", r#"{"sum_received":{"seconds":10,"bits_per_second":8e9}}"#);
    let interval = event("interval", "{}");
    let stream_text = format!("{start}{interval}{end}");
    assert_eq!(Tool::detect(stream_text.as_bytes()), Some(Tool::Iperf3));
    let run = read(Tool::Iperf3, stream_text.as_bytes()).unwrap();
    assert_eq!(values(&run).collect::<Vec<_>>(), [("net.peer.bandwidth direction=to_agent streams=2".into(), 1e9)]);
    let error = read(Tool::Iperf3, format!("{start}{interval}").as_bytes()).unwrap_err();
    assert!(error.to_string().contains("did not end"), "{error}");
    let failed_text = format!("{start}{}{end}", event("error", "\"lost\""));
    assert!(read(Tool::Iperf3, failed_text.as_bytes()).unwrap_err().to_string().contains("test failed"));
}

/// A test of files as sysbench 1.1 prints it: the same options, then what `file_report_cumulative` of its `sb_fileio.c` writes, which has no
/// total time.
fn as_sysbench_1_1(file: &str) -> String {
    let (options, _) = file.split_once("File operations:").unwrap();
    let (_, latency) = file.split_once("Latency (ms):").unwrap();
    let (latency, _) = latency.split_once("\nThreads fairness:").unwrap();
    let figures = "Throughput:\n         read:  IOPS=21783.60 85.09 MiB/s (89.23 MB/s)\n         write: IOPS=0.00 0.00 MiB/s \
                   (0.00 MB/s)\n         fsync: IOPS=0.00\n\nLatency (ms):";
    format!("{}{figures}{latency}", options.replacen("sysbench 1.0.20", "sysbench 1.1.0-3ceba0b", 1))
}

#[test]
fn sysbench_1_1_equals_1_0() {
    let file = include_str!("data/sysbench-fileio.txt");
    let [older, newer] = [file, &as_sysbench_1_1(file)].map(|file| read(Tool::Sysbench, file.as_bytes()).unwrap());
    assert_eq!(newer.header.foreign.as_ref().unwrap().version, "1.1.0-3ceba0b");
    assert_eq!(values(&newer).collect::<Vec<_>>(), [("file.depth.rate depth=1".into(), 21783.6)]);
    assert_eq!((values(&newer).collect::<Vec<_>>(), &newer.notes), (values(&older).collect(), &older.notes));
}

#[test]
fn other_sysbench_work_is_not_random_read() {
    let older = include_str!("data/sysbench-fileio.txt");
    let newer = &as_sysbench_1_1(older);
    let (begins, fails) = ("Running the test with following options:", "FATAL: Failed to read file!");
    let (rate, failure) = (format!("{begins}\nTarget transaction rate: 50/sec"), format!("Threads started!\n{fails}"));
    for (part, replacement, reason) in [
        (begins, rate.as_str(), "--rate"),
        ("Number of threads: 1", "Number of threads: 2", "several threads"),
        ("Doing random read test", "Doing random r/w test", "another mode"),
        ("Doing random read test", "Doing sequential read test", "another mode"),
        ("Block size 4KiB", "Block size 16KiB", "other blocks"),
        ("directio", "sync ", "through the page cache"),
        ("directio", "(none)", "through the page cache"),
        ("synchronous I/O mode", "asynchronous I/O mode", "another mode"),
        ("Doing random", "Using checksums validation.\nDoing random", "another mode"),
        ("Threads started!", &failure, "test failed (FATAL: Failed to read file!)"),
    ] {
        for file in [older, newer] {
            assert_refused(file, (part, replacement), reason);
        }
    }
    assert_refused(older, ("1.0001s", "0.0043s"), "half a second");
    assert_refused(newer, ("992.26", "4.26"), "half a second");
    assert_refused(older, ("reads/s:", "reads/s: about"), "reads/s: its value cannot be read");
    assert_refused(newer, ("read:  IOPS=", "read:  IOPS=about "), "reads/s: its value cannot be read");
    assert_refused(newer, ("read:  IOPS=21783.60", "read:  IOPS=0.00"), "its value is 0");
}

/// That nothing is imported of a file of sysbench with another part, for this reason.
#[track_caller]
fn assert_refused(file: &str, (part, replacement): (&str, &str), reason: &str) {
    assert!(file.contains(part), "{part}");
    let error = read(Tool::Sysbench, file.replacen(part, replacement, 1).as_bytes()).unwrap_err().to_string();
    assert!(error.contains(reason) && !error.contains('\n'), "{replacement}: {error}");
}

#[test]
fn parallel_lmbench_is_not_imported() {
    let file = include_str!("data/lmbench.out");
    let import_error =
        |line: &str| read(Tool::Lmbench, file.replacen("[SYNC_MAX: 1]", line, 1).as_bytes()).unwrap_err().to_string();
    assert!(import_error("[SYNC_MAX: 2]").contains("several processes at once"));
    assert!(import_error("").contains("SYNC_MAX: ...] is missing"));
}

#[test]
fn unreadable_lmbench_line_is_reported() {
    let file = include_str!("data/lmbench.out");
    let line = file.lines().find(|line| line.starts_with("Simple syscall")).unwrap();
    let run = read(Tool::Lmbench, file.replacen(line, "Simple syscall: 61.2 nanoseconds", 1).as_bytes()).unwrap();
    let note = "not imported: Simple syscall: its value cannot be read";
    assert!(run.notes.iter().any(|other| other == note), "{:?}", run.notes);
}

#[test]
fn encoding_does_not_change_results() {
    for (tool, file) in FILES {
        let expected = result_text(&read(tool, file.as_bytes()));
        let encoded = |mark: [u8; 2], unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
            mark.into_iter().chain(file.encode_utf16().flat_map(unit)).collect()
        };
        let utf8_with_bom = [b"\xef\xbb\xbf", file.as_bytes()].concat();
        for bytes in [utf8_with_bom, encoded([0xff, 0xfe], u16::to_le_bytes), encoded([0xfe, 0xff], u16::to_be_bytes)] {
            assert_eq!(Tool::detect(&bytes), Some(tool));
            assert_eq!(result_text(&read(tool, &bytes)), expected, "{tool:?}");
        }
        let latin_1 = [b"job \"caf\xe9\"\n", file.as_bytes()].concat();
        assert_eq!(Tool::detect_quoted(&latin_1), Some(tool));
        assert_eq!(result_text(&read(tool, &latin_1)), expected, "{tool:?}");
    }
}

#[test]
fn same_file_is_same_run() {
    let file = FILES[1].1.as_bytes();
    let [first, second] = [read(Tool::Fio, file), read(Tool::Fio, file)].map(Result::unwrap);
    assert_eq!(first, second);
    let modified = FILES[1].1.replacen("54621", "54622", 1);
    assert_ne!(read(Tool::Fio, modified.as_bytes()).unwrap().header.id, first.header.id);
}

#[test]
fn host_and_file_names_are_dropped() {
    for (tool, file) in FILES {
        let Ok(run) = read(tool, file.as_bytes()) else { continue };
        let debug_text = format!("{run:?}");
        for private in ["10.199.7", "/var/tmp", "\"vm\"", " vm "] {
            assert!(!debug_text.contains(private), "{tool:?}: {private}");
        }
    }
}

#[test]
fn every_mapping_has_a_reason() {
    for tool in Tool::ALL {
        let table = tool.table();
        assert!(table.iter().all(|row| !row.foreign_name.is_empty() && row.reason.len() > 10));
        assert!(table.iter().any(|row| row.metric.is_some()) && table.iter().any(|row| row.metric.is_none()));
    }
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn index_below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

/// Replacements that parsers stumble over.
const HOSTILE_TOKENS: [&str; 16] = [
    "-1",
    "0",
    "1e999",
    "-0.0",
    "18446744073709551616",
    "NaN",
    "null",
    "\"\"",
    "{}",
    "[[[[",
    "\u{0}",
    "\u{1b}[2J",
    "ü",
    "\"",
    ": ",
    "]\n[",
];

fn mutate(file: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = file.as_bytes().to_vec();
    for _ in 0..=random.index_below(4) {
        let position = random.index_below(bytes.len());
        match random.index_below(5) {
            0 => bytes[position] ^= 1 << random.index_below(8),
            1 => bytes.truncate(position),
            2 => {
                let token = HOSTILE_TOKENS[random.index_below(HOSTILE_TOKENS.len())].bytes();
                bytes.splice(position..(position + random.index_below(8)).min(bytes.len()), token);
            }
            3 => {
                // A number becomes another one.
                let end = (position..bytes.len()).find(|&i| !bytes[i].is_ascii_digit()).unwrap_or(bytes.len());
                bytes.splice(position..end, HOSTILE_TOKENS[random.index_below(6)].bytes());
            }
            _ => {
                let start = random.index_below(bytes.len());
                let part = bytes[start..(start + random.index_below(60)).min(bytes.len())].to_vec();
                bytes.splice(position..position, part);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[test]
fn mutated_files_never_panic() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut runs = 0;
    for (tool, file) in FILES {
        for _ in 0..400 {
            let bytes = mutate(file, &mut random);
            let _ = Tool::detect(&bytes);
            let Ok(run) = read(tool, &bytes) else { continue };
            runs += 1;
            assert!(values(&run).all(|(_, value)| value.is_finite() && value > 0.0));
            let version = &run.header.foreign.as_ref().unwrap().version;
            assert!(version.len() <= 40 && version.is_ascii());
            assert!(run.header.started.parse::<Timestamp>().is_ok());
        }
    }
    assert!(runs > 100, "most mutations leave a file that can be read: {runs}");
}
