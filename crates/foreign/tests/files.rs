//! Files that the programs themselves wrote, whole and mutated.

use jiff::Timestamp;
use kelvin_foreign::{Error, Import, Tool};
use kelvin_model::{Attempt, Readings, Run};

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
    tool.read(file, &Import { written: Timestamp::UNIX_EPOCH, kelvin: "0.1.0" })
}

/// What a run holds, a line each, or why there is none.
fn told(run: &Result<Run, Error>) -> String {
    let run = match run {
        Ok(run) => run,
        Err(error) => return error.to_string(),
    };
    let foreign = run.outline.foreign.as_ref().unwrap();
    let machine = &run.outline.machine;
    let mut lines = vec![format!(
        "{} {} at {} on {} with {:?} at {:?}",
        foreign.tool,
        foreign.version,
        run.outline.started,
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
        let Attempt::Measured(readings) = &measurement.rounds[0].attempt else { panic!("{measurement:?}") };
        readings.iter().map(move |reading| {
            let Readings::Scalars(values) = &reading.readings else { panic!("{reading:?}") };
            (format!("{} {}", reading.metric, measurement.planned.case), values[0])
        })
    })
}

#[test]
fn each_file_gives_what_is_a_metric_and_says_what_is_not() {
    let all: Vec<String> = FILES.iter().map(|(tool, file)| told(&read(*tool, file.as_bytes()))).collect();
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn a_file_is_known_by_who_wrote_it_and_by_nobody_else() {
    for (tool, file) in FILES {
        assert_eq!(Tool::that_wrote(file.as_bytes()), Some(tool));
        for other in Tool::ALL.into_iter().filter(|other| *other != tool) {
            assert!(matches!(read(other, file.as_bytes()), Err(Error::NotOf { .. })), "{other:?} of {tool:?}");
        }
        // Behind something else it is a quotation.
        assert_eq!(Tool::that_wrote(format!("see:\n{file}").as_bytes()), None);
    }
    let nobodys = ["", "{}", "[]", "null", "{\"format\": 1}", "sysbench 1.0", "fio-3.33", "{\"fio version\": 3}"];
    assert!(nobodys.iter().all(|text| Tool::that_wrote(text.as_bytes()).is_none()));
    assert_eq!(Tool::that_wrote(&[0xff, 0xfe]), None);
}

#[test]
fn the_same_file_is_the_same_run() {
    let file = FILES[1].1.as_bytes();
    let [one, other] = [read(Tool::Fio, file), read(Tool::Fio, file)].map(Result::unwrap);
    assert_eq!(one, other);
    let changed = FILES[1].1.replacen("54621", "54622", 1);
    assert_ne!(read(Tool::Fio, changed.as_bytes()).unwrap().outline.id, one.outline.id);
}

#[test]
fn no_name_of_a_host_or_file_is_kept() {
    for (tool, file) in FILES {
        let Ok(run) = read(tool, file.as_bytes()) else { continue };
        let kept = format!("{run:?}");
        for private in ["10.199.7", "/var/tmp", "\"vm\"", " vm "] {
            assert!(!kept.contains(private), "{tool:?}: {private}");
        }
    }
}

#[test]
fn every_table_says_why_and_names_what_is_imported() {
    for tool in Tool::ALL {
        let table = tool.table();
        assert!(table.iter().all(|row| !row.theirs.is_empty() && row.why.len() > 10));
        assert!(table.iter().any(|row| row.ours.is_some()) && table.iter().any(|row| row.ours.is_none()));
    }
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

/// Replacements that parsers stumble over.
const TOKENS: [&str; 16] = [
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

fn mutated(file: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = file.as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => {
                let token = TOKENS[random.below(TOKENS.len())].bytes();
                bytes.splice(at..(at + random.below(8)).min(bytes.len()), token);
            }
            3 => {
                // A number becomes another one.
                let end = (at..bytes.len()).find(|&i| !bytes[i].is_ascii_digit()).unwrap_or(bytes.len());
                bytes.splice(at..end, TOKENS[random.below(6)].bytes());
            }
            _ => {
                let from = random.below(bytes.len());
                let part = bytes[from..(from + random.below(60)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[test]
fn whatever_a_file_holds_a_run_has_numbers_and_nothing_panics() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut runs = 0;
    for (tool, file) in FILES {
        for _ in 0..400 {
            let bytes = mutated(file, &mut random);
            let _ = Tool::that_wrote(&bytes);
            let Ok(run) = read(tool, &bytes) else { continue };
            runs += 1;
            assert!(values(&run).all(|(_, value)| value.is_finite() && value > 0.0));
            let version = &run.outline.foreign.as_ref().unwrap().version;
            assert!(version.len() <= 40 && version.is_ascii());
            assert!(run.outline.started.parse::<Timestamp>().is_ok());
        }
    }
    assert!(runs > 100, "most mutations leave a file that can be read: {runs}");
}
