//! Every published figure is somewhere, where it belongs, and as it was published.

use kelvin_core::catalogue::file::{AccessOrder, ByteCall, CacheState, FileSharing, ReadEngine};
use kelvin_core::catalogue::os::NullCall;
use kelvin_core::catalogue::{PairPlacement, cpu, file, net, os, transfer};
use kelvin_core::{Case, Metric, Unit, Value};
use toml::{Table, Value as Toml};

use super::*;

const ZENBOOK: &str = "zenbook-2011";
const OS_BENCH: &str = "os-bench-2013";
/// The studies with rows, as they are written.
const MEASURED_STUDIES: [(&str, &str); 3] = [
    (ZENBOOK, include_str!("../../references/zenbook-2011.toml")),
    (OS_BENCH, include_str!("../../references/os-bench-2013.toml")),
    ("disk-reader-2021", include_str!("../../references/disk-reader-2021.toml")),
];
const TRANSFER_STUDY: &str = include_str!("../../references/kernel-transfer-2020.toml");

fn reference(id: &str) -> &'static Reference {
    references().iter().find(|reference| reference.id == *id).unwrap()
}

/// What was published for a metric at exactly this case.
fn published_at(metric: &str, case: &Case) -> Vec<(&'static Reference, &'static ReferenceValue)> {
    let values = references().iter().flat_map(|reference| reference.values.iter().map(move |value| (reference, value)));
    values.filter(|(_, value)| value.metric == *metric && value.case == *case).collect()
}

fn only_published(metric: &Metric, case: &Case, study: &str) -> &'static ReferenceValue {
    let matches: Vec<_> =
        published_at(metric.id.as_str(), case).into_iter().filter(|(reference, _)| reference.id == *study).collect();
    assert_eq!(matches.len(), 1, "{} {case} of {study}", metric.id);
    matches[0].1
}

/// All numbers below a value, those written as text left out.
fn collect_numbers(value: &Toml, numbers: &mut Vec<f64>) {
    match value {
        Toml::Integer(number) => numbers.push(*number as f64),
        Toml::Float(number) => numbers.push(*number),
        Toml::Array(items) => items.iter().for_each(|item| collect_numbers(item, numbers)),
        Toml::Table(fields) => fields.values().for_each(|field| collect_numbers(field, numbers)),
        _ => {}
    }
}

/// All numbers that a reference value holds.
fn figures(value: &ReferenceValue) -> Vec<f64> {
    let case = value.case.iter().filter_map(|(_, value)| match value {
        Value::Integer(number) => Some(number as f64),
        Value::Word(_) => None,
    });
    let fields = [Some(value.value), value.cycles, value.std, value.predicted, value.n.map(|n| n as f64)];
    case.chain(fields.into_iter().flatten()).chain(value.other_values.iter().map(|(_, figure)| *figure)).collect()
}

#[test]
fn five_machines_are_built_in() {
    let ids: Vec<_> = references().iter().map(|reference| reference.id.as_str()).collect();
    let expected = ["zenbook-2011", "os-bench-2013", "disk-reader-2021", "kernel-transfer-2020", "file-server-lan"];
    assert_eq!(ids, expected);
    assert!(references().iter().all(|reference| !reference.title.is_empty()));
    let findings: Vec<_> = references().iter().map(|reference| reference.findings.len()).collect();
    assert_eq!(findings, [0, 2, 2, 1, 1], "findings, hypotheses, and answers kept as curiosities");
    assert_eq!(reference("zenbook-2011").frequency_hz, Some(1.6e9));
    assert_eq!(reference("zenbook-2011").machine.len(), 11);
}

#[test]
fn every_row_and_figure_is_kept() {
    for (id, text) in MEASURED_STUDIES {
        let file: Table = text.parse().unwrap();
        let mut values = reference(id).values.iter();
        for row in file["metric"].as_array().unwrap() {
            let points = row.get("x").map_or(1, |x| x.as_array().unwrap().len());
            let row_values: Vec<_> = values.by_ref().take(points).collect();
            assert_eq!(row_values.len(), points, "{row}");
            let kept_figures: Vec<f64> = row_values.iter().flat_map(|value| figures(value)).collect();
            let mut published = Vec::new();
            collect_numbers(row, &mut published);
            for figure in published {
                assert!(kept_figures.contains(&figure), "{figure} of {row} is nowhere");
            }
            for words in ["note", "spans", "by"] {
                let Some(words) = row.get(words).and_then(Toml::as_str) else { continue };
                let has_words =
                    |v: &&ReferenceValue| [&v.note, &v.range].into_iter().flatten().any(|t| t.contains(words));
                assert!(row_values.iter().all(has_words), "{words:?} is nowhere");
            }
        }
        assert_eq!(values.count(), 0, "{id} has values that no row published");
    }
}

/// The rows of a file of metrics.
fn rows(text: &str) -> Vec<String> {
    let file: Table = text.parse().unwrap();
    file["metric"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_mapping_has_published_row() {
    for place in row_mapping::ROW_MAPPINGS {
        let studies = MEASURED_STUDIES.iter().filter(|(study, _)| place.is_for_study(study));
        let published = studies.flat_map(|(study, text)| rows(text).into_iter().map(move |row| (study, row)));
        let mut matching = published.filter(|(_, row)| row == place.row);
        let is_mapped = |(study, row): (&&str, String)| row_mapping::unmatched_row(study, &row).is_none();
        assert!(matching.any(is_mapped), "no study published {}, or it has no counterpart", place.row);
    }
}

#[test]
fn every_unmatched_row_has_reason() {
    for unmatched in UNMATCHED_ROWS {
        assert!(!unmatched.reason.is_empty());
        let published = match MEASURED_STUDIES.iter().find(|(study, _)| *study == unmatched.study) {
            Some((_, text)) => rows(text).iter().any(|row| row == unmatched.row),
            None => tables(unmatched.study).iter().any(|table| table == unmatched.row),
        };
        assert!(published, "{unmatched:?}");
    }
}

/// The tables of a study without rows that are metrics: all but what they were measured on, what was found, and the cells that
/// have cases.
fn tables(study: &str) -> Vec<String> {
    let text = [
        ("kernel-transfer-2020", TRANSFER_STUDY),
        ("file-server-lan", include_str!("../../references/file-server-lan.toml")),
    ];
    let (_, text) = text.into_iter().find(|(id, _)| *id == study).unwrap();
    let file: Table = text.parse().unwrap();
    file.keys().filter(|key| !["machine", "datasets", "finding", "table"].contains(&key.as_str())).cloned().collect()
}

#[test]
fn other_study_tables_are_unmatched() {
    for study in ["kernel-transfer-2020", "file-server-lan"] {
        for table in tables(study) {
            assert!(row_mapping::unmatched_row(study, &table).is_some(), "{table} of {study}");
        }
    }
}

#[test]
fn transfer_cells_map_to_kernel_and_blocking() {
    let values = &reference("kernel-transfer-2020").values;
    assert!(values.iter().all(|value| value.metric == transfer::TIME.id));
    let (kernel_values, user_values): (Vec<_>, Vec<_>) =
        values.iter().partition(|value| transfer::has_kernel_end(&value.case));
    assert_eq!((kernel_values.len(), user_values.len()), (3 * 16, 3 * 12));
    let cases: std::collections::BTreeSet<&Case> = values.iter().map(|value| &value.case).collect();
    assert_eq!(cases.len(), values.len());
    let cell = Case::new()
        .with_word(transfer::TransferFiles::Large)
        .with_word(transfer::SenderMethod::Mmap)
        .with_word(transfer::ReceiverMethod::ReadWrite);
    let cell = cell
        .with_word(transfer::ConnectionPolicy::PerFile)
        .with_number(transfer::WINDOW, 16)
        .with_number(transfer::BUFFER, 512);
    let cell = cell.with_word(transfer::WaitMode::Blocking).with_word(transfer::ReplyPolicy::None);
    let value = only_published(&transfer::TIME, &cell, "kernel-transfer-2020");
    assert_eq!((value.value, value.std, value.n), (4170.859 * 1e6, Some(566.597 * 1e6), Some(100)));
    assert_eq!(value.other_values, [("rate, KB per ms".to_owned(), 85.307)]);
    assert!(matches!(comparability(value, &transfer::TIME), Comparability::ShownOnly(why) if why.contains("kernel")));
    let is_asynchronous = |case: &Case| transfer::WaitMode::of(case) == Some(transfer::WaitMode::Fasync);
    assert_eq!(kernel_values.iter().filter(|value| is_asynchronous(&value.case)).count(), 12);
    assert!(
        kernel_values.iter().all(|value| value.range.as_ref().is_some_and(|reason| reason.contains("one copy more")))
    );
    let kernel_cell = transfer::with_kernel_ends(&cell.clone().with_word(transfer::WaitMode::Blocking)).unwrap();
    assert_eq!(only_published(&transfer::TIME, &kernel_cell, "kernel-transfer-2020").value, value.value);
    let mut published = Vec::new();
    collect_numbers(&TRANSFER_STUDY.parse::<Table>().unwrap()["table"], &mut published);
    // Three figures of each cell, and the window of each table.
    assert_eq!(published.len(), 3 * 48 + 4);
}

#[test]
fn unknown_keys_are_errors() {
    let is_rejected = |text: &str| toml::from_str::<rows::RowFile>(text).is_err();
    let header = "[machine]\nid = \"m\"\ntitle = \"t\"\n";
    let row = "[[metric]]\nid = \"cpu.loop\"\nvalue = 1.0\n";
    assert!(!is_rejected(&format!("{header}{row}")));
    assert!(is_rejected(&format!("{header}colour = 1\n{row}")));
    assert!(is_rejected(&format!("{header}{row}valeu = 2.0\n")));
    assert!(is_rejected(&format!("{header}{row}unit = \"furlongs\"\n")));
    assert!(is_rejected(&format!("{header}{row}[[metrics]]\n")));
}

#[test]
fn every_machine_line_is_kept() {
    for (id, text) in MEASURED_STUDIES {
        let file: Table = text.parse().unwrap();
        let keys = file["machine"].as_table().unwrap().len();
        assert_eq!(reference(id).machine.len(), keys - 2, "all but id and title");
    }
    let text = |id, line: usize| reference(id).machine[line].1.as_str();
    assert_eq!([1, 2, 3].map(|line| text("kernel-transfer-2020", line)), ["4096 B", "512 B", "100"]);
    assert_eq!(text("file-server-lan", 2), "10000 of 2000000 B");
}

#[test]
fn mapped_row_keeps_figures() {
    let call = |arguments| Case::new().with_number(cpu::ARGUMENTS, arguments).with_word(cpu::CallKind::Direct);
    assert_eq!(only_published(&cpu::CALL_ARGS, &call(7), ZENBOOK).value, 10.225);
    assert_eq!(only_published(&cpu::CALL_ARGS, &call(7), ZENBOOK).cycles, Some(16.36));
    assert_eq!(only_published(&cpu::CALL_ARGS, &call(0), OS_BENCH).n, Some(10_000_000));
    assert_eq!(published_at(cpu::CALL_ARGS.id.as_str(), &call(0)).len(), 2);
    assert!(
        published_at(cpu::CALL_ARGS.id.as_str(), &Case::new().with_number(cpu::ARGUMENTS, 7)).is_empty(),
        "only the exact case"
    );
    assert_eq!(only_published(&cpu::LOOP, &Case::new(), ZENBOOK).std, Some(0.18 * 0.625));

    // Published in cycles only.
    let direct = |order: AccessOrder, mib: u64| {
        Case::new().with_word(CacheState::Direct).with_word(order).with_number(file::BYTES, mib << 20)
    };
    let sequential = only_published(&file::READ_ORDER, &direct(AccessOrder::Sequential, 128), ZENBOOK);
    assert_eq!(sequential.value, 24313.62 * 0.625);
    assert_eq!(sequential.std, Some(158732.27 * 0.625));
    assert_eq!(sequential.predicted, Some(13888.89 * 0.625));
    let random = published_at(file::READ_ORDER.id.as_str(), &direct(AccessOrder::Random, 16));
    assert!(random.is_empty(), "that column is not legible");

    let streams =
        Case::new().with_word(PairPlacement::SameCpu).with_number(net::MESSAGE, 4096).with_number(net::STREAMS, 1);
    let bandwidth = only_published(&net::BANDWIDTH_TCP, &streams, ZENBOOK);
    assert_eq!((bandwidth.unit, bandwidth.n), (Unit::BytesPerSecond, Some(1000)));
    assert_eq!(bandwidth.other_values, [("peak, bytes per second".to_owned(), 3822.04e6)]);

    let cached = Case::new().with_word(CacheState::Cached).with_number(file::BLOCK, 4096);
    let autosize = only_published(&file::BLOCKSIZE_READ, &cached, "disk-reader-2021");
    assert_eq!(autosize.other_values[1..], [("blocks".to_owned(), 7_986_697.0), ("seconds".to_owned(), 10.0)]);
}

#[test]
fn total_maps_to_same_total() {
    let engine = Case::new().with_word(ReadEngine::Mmap).with_number(file::BLOCK, 100);
    let total = only_published(&file::WHOLE_FILE, &engine, OS_BENCH);
    assert_eq!((total.value, &total.other_values[..]), (8_194_026.0, &[("at".to_owned(), 100.0)][..]));
    assert_eq!(comparability(total, &file::WHOLE_FILE), Comparability::Equal);
    let values = reference(OS_BENCH).values.iter().filter(|value| value.metric == file::WHOLE_FILE.id);
    assert_eq!(values.count(), 15);
}

#[test]
fn unmatched_row_keeps_row_name() {
    let row_figures =
        |row: &str| reference(ZENBOOK).values.iter().filter(|value| value.metric == *row).collect::<Vec<_>>();
    let dram = row_figures("mem.latency.dram")[0];
    assert_eq!(dram.value, 135.0 * 0.625);
    assert_eq!(dram.other_values[..2], [("lowest, cycles".into(), 100.0), ("highest, cycles".into(), 170.0)]);
    for row in ["file.read.remote.seq", "file.read.remote.rand", "file.read.direct.seq", "file.byte_calls"] {
        assert!(row_figures(row).is_empty(), "a study has all its points");
    }
}

#[test]
fn sixteen_thread_rows_map_to_study_files() {
    let case = |block: u64, bytes: u64| {
        Case::new()
            .with_number(file::THREAD_COUNT, 16)
            .with_word(FileSharing::Own)
            .with_number(file::BLOCK, block)
            .with_number(file::BYTES, bytes)
    };
    let value = only_published(&file::CONTENTION, &case(4096, 64 << 20), ZENBOOK);
    assert_eq!((value.value, value.cycles), (13_001_060.0 * 0.625, Some(13_001_060.0)));
    assert_eq!(comparability(value, &file::CONTENTION), Comparability::Equal);
    assert!(published_at(file::CONTENTION.id.as_str(), &case(1 << 20, 16 << 20)).is_empty(), "a run reads 1 MiB");
}

#[test]
fn call_rates_map_to_call_times() {
    let call = |call: ByteCall| Case::new().with_word(call).with_number(file::FILE_BYTES, 256_000_000);
    let value = only_published(&file::BYTE_CALLS, &call(ByteCall::Lseek), "disk-reader-2021");
    assert_eq!((value.value, value.unit), (1e9 / 12_570_552.0, Unit::Nanoseconds));
    assert!(value.other_values.contains(&("per second".to_owned(), 12_570_552.0)));
    assert_eq!(comparability(value, &file::BYTE_CALLS), Comparability::Equal);
    assert!(published_at(file::BYTE_CALLS.id.as_str(), &call(ByteCall::Read)).is_empty(), "what was called was lseek");
}

#[test]
fn published_cycles_and_times_agree() {
    // Both columns are rounded. Connecting to the other host is the one row where they differ by more: 1080009.16
    // cycles are 675006 ns, and 675730 ns were printed.
    for value in &reference(ZENBOOK).values {
        let Some(cycles) = value.cycles else { continue };
        let error = (cycles * 0.625 - value.value).abs();
        let is_known_slip = value.metric == net::PEER_CONNECT.id;
        let tolerance = if is_known_slip { 725.0 } else { (value.value * 4e-4).max(0.02) };
        assert!(error < tolerance, "{} {}: {error}", value.metric, value.case);
    }
}

#[test]
fn only_equal_quantities_are_comparable() {
    let shown_only = |metric: &Metric, case: &Case, study| {
        matches!(comparability(only_published(metric, case, study), metric), Comparability::ShownOnly(_))
    };
    let call = |call: NullCall| Case::new().with_word(call);
    assert!(shown_only(&os::SYSCALL_NULL, &call(NullCall::Getppid), ZENBOOK), "a fresh child each time");
    assert!(!shown_only(&os::SYSCALL_NULL, &call(NullCall::Gettid), OS_BENCH));
    assert!(shown_only(&os::SWITCH_COST, &os::HandoffMechanism::Pipe.between_processes(), ZENBOOK), "two switches");
    assert!(
        published_at(os::SWITCH_COST.id.as_str(), &os::HandoffMechanism::Condvar.between_threads()).is_empty(),
        "one way, nothing subtracted"
    );
    for woken in [os::HandoffMechanism::Pipe.between_processes(), os::HandoffMechanism::Condvar.between_threads()] {
        assert!(!shown_only(&os::ONE_WAY_WAKE_UP, &woken.with_word(PairPlacement::SameCpu), OS_BENCH));
    }
    assert!(shown_only(&cpu::LOOP, &Case::new(), ZENBOOK), "not optimised");
    assert!(!shown_only(&os::PROCESS_FORK, &Case::new(), ZENBOOK));
    let in_cycles = os::PROCESS_FORK.unit(Unit::Cycles, kelvin_core::Better::Lower);
    assert!(shown_only(&in_cycles, &Case::new(), ZENBOOK), "another unit");
}
