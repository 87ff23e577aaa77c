//! Conclusions on the engines that read a file.

use kelvin_analysis::StatedConclusion;
use kelvin_analysis::testing::{self, add_scalars};
use kelvin_core::{Axis, AxisScale, Case, HeadlineSamples, Metric, Run};

const METRIC: Metric = Metric::duration("file.engines", "The time of a request by an engine")
    .headline(HeadlineSamples::AsFound)
    .with_axes([Axis::new("engine", "engine", AxisScale::Category), Axis::new("block", "block", AxisScale::Bytes)]);

/// A run in which each engine has a fixed cost and one per byte, each size in six rounds with 0.5 % of noise.
fn run(engines: &[(&'static str, f64, f64)], sizes: &[u64]) -> Run {
    let mut run = testing::empty_run(&[METRIC]);
    for (index, &(name, fixed, per_byte)) in engines.iter().enumerate() {
        for &block in sizes {
            let case =
                Case::new().with_word(kelvin_core::AxisWord::from_names("engine", name)).with_number("block", block);
            let value = fixed + per_byte * block as f64;
            let noise = |round: usize| 0.0025 * ((round * 5 + index * 3 + block as usize) % 6) as f64;
            let rounds: Vec<f64> = (0..6).map(|round| value * (1.0 + noise(round))).collect();
            add_scalars(&mut run, &METRIC, case, &rounds);
        }
    }
    run
}

const SIZES: [u64; 5] = [1, 100, 10_000, 100_000, 1_000_000];

fn conclusion_with<'a>(conclusions: &'a [StatedConclusion], words: &str) -> &'a StatedConclusion {
    let matching = conclusions.iter().find(|conclusion| conclusion.text.contains(words));
    matching.unwrap_or_else(|| panic!("no conclusion about {words:?} in {conclusions:#?}"))
}

#[test]
fn engines_cross_at_equal_costs() {
    // read and fread meet at 9900 bytes, read and mmap never, fread and mmap between 100 and 10,000.
    let engines = [("read", 100.0, 0.1), ("fread", 1.0, 0.11), ("mmap", 50.0, 0.05), ("pread", 100.0, 0.1)];
    let study = testing::study(&run(&engines, &SIZES), "file.engines").unwrap();
    let conclusions = &study.conclusions;
    assert!(
        study.design.contains("4 engines") && study.design.contains("1 B to 1\u{202f}000\u{202f}000 B"),
        "{}",
        study.design
    );
    let fread = conclusion_with(conclusions, "fread beats read");
    assert!(
        fread.text.contains("at requests below about") && fread.text.contains("(between 100 B and 100\u{202f}000 B)"),
        "{fread:?}"
    );
    assert_eq!(fread.holds, Some(true));
    let mmap = conclusion_with(conclusions, "mmap beats read");
    assert_eq!(
        (mmap.text.as_str(), mmap.holds),
        ("mmap beats read at all 5 request sizes, 1 B to 1\u{202f}000\u{202f}000 B", Some(true))
    );
    assert!(mmap.test.contains("0.50"), "{}", mmap.test);
    let pread = conclusion_with(conclusions, "pread and read differ");
    assert_eq!(pread.holds, None);
    assert!(
        conclusions.iter().all(|conclusion| !conclusion.text.contains("beats fread")),
        "what the table shows needs no sentence: {conclusions:#?}"
    );
    assert_eq!(conclusion_with(conclusions, "of 4 engines fread is fastest at requests of 1 B").holds, Some(true));
    assert_eq!(
        conclusion_with(conclusions, "of 4 engines mmap is fastest at requests of 1\u{202f}000\u{202f}000 B").holds,
        Some(true)
    );
}

#[test]
fn many_engines_give_table_and_eight_sentences() {
    let names =
        ["read", "fread", "mmap", "pread", "readv", "preadv", "preadv2", "io_uring", "aio", "splice", "sendfile", "dd"];
    let engines: Vec<(&str, f64, f64)> = names
        .iter()
        .enumerate()
        .map(|(index, &name)| (name, 100.0 - 8.0 * index as f64, 0.1 + 0.01 * index as f64))
        .collect();
    let study = testing::study(&run(&engines, &SIZES), "file.engines").unwrap();
    let [answer] = &study.answers[..] else { panic!("{:?}", study.answers) };
    assert!(answer.text.starts_with("The fastest engine is dd at 1 B and 100 B, "), "{}", answer.text);
    assert!(answer.text.contains(", read at "), "{}", answer.text);
    assert!(answer.reasons.len() < 8 && answer.reasons.iter().all(|line| line.ends_with('.')), "{answer:#?}");
    let [table] = &study.tables[..] else { panic!("{:?}", study.tables) };
    assert_eq!((table.rows.len(), table.columns.len()), (names.len(), SIZES.len()));
    assert!(table.rows.iter().all(|row| row.cells.iter().all(Option::is_some)));
    assert!(study.conclusions.len() <= names.len() - 1 + SIZES.len());
}

#[test]
fn losing_and_equal_engines_have_no_crossing() {
    let engines = [("read", 100.0, 0.1), ("readv", 130.0, 0.13), ("pread", 100.0, 0.1)];
    let study = testing::study(&run(&engines, &SIZES), "file.engines").unwrap();
    let conclusions = &study.conclusions;
    let readv = conclusion_with(conclusions, "readv beats read");
    assert!(readv.text.contains("read wins at all 5 request sizes, 1 B to "), "{}", readv.text);
    assert_eq!(readv.holds, Some(false));
    let first = conclusion_with(conclusions, "is fastest at requests of 1 B");
    assert!(first.text.contains("possibly as fast: ") && !first.text.ends_with("readv"), "{}", first.text);
    assert_eq!(first.holds, None);
}

#[test]
fn two_sizes_report_points_without_crossing() {
    let engines = [("read", 100.0, 0.1), ("fread", 1.0, 0.11), ("mmap", 50.0, 0.05)];
    let study = testing::study(&run(&engines, &[1, 1_000_000]), "file.engines").unwrap();
    let fread = conclusion_with(&study.conclusions, "fread beats read");
    assert_eq!(
        fread.text,
        "fread beats read at requests of 1 B, and read wins at 1\u{202f}000\u{202f}000 B: too few sizes on one side to say where they \
         cross"
    );
    let [answer] = &study.answers[..] else { panic!("{:?}", study.answers) };
    assert!(!answer.reasons.concat().contains("about"), "{answer:#?}");
    // Nothing was measured between the two.
    let study = testing::study(
        &run(&[("read", 100.0, 0.1), ("pread", 90.0, 0.1), ("mmap", 5.0, 0.05)], &[1, 1_000_000]),
        "file.engines",
    );
    let text = &study.unwrap().answers[0].text;
    assert_eq!(text, "The fastest engine is mmap at 1 B and 1\u{202f}000\u{202f}000 B.");
}

#[test]
fn too_few_sizes_or_no_read_give_none() {
    assert_eq!(testing::study(&testing::empty_run(&[]), "file.engines"), None);
    assert_eq!(testing::study(&run(&[("read", 100.0, 0.1), ("mmap", 50.0, 0.1)], &[1]), "file.engines"), None);
    assert_eq!(testing::study(&run(&[("pread", 100.0, 0.1), ("mmap", 50.0, 0.1)], &SIZES), "file.engines"), None);
    let complete = run(&[("read", 100.0, 0.1), ("mmap", 50.0, 0.1)], &SIZES);
    assert!(kelvin_analysis::studies(&complete).iter().any(|study| study.id == *"file.engines"));
}
