//! Conclusions from file measurements.

use kelvin_analysis::StatedConclusion;
use kelvin_analysis::analyse;
use kelvin_analysis::testing::{self, add_scalars};
use kelvin_core::{Better, Case, HeadlineSamples, Metric, Run, Unit};

const READ: Metric = Metric::rate("file.blocksize.read", "A rate of blocks").headline(HeadlineSamples::AsFound);
const DEPTH: Metric = Metric::rate("file.depth.rate", "Requests")
    .unit(Unit::PerSecond, Better::Higher)
    .headline(HeadlineSamples::AsFound);

/// Six rounds around a rate, with this noise.
fn rounds(rate: f64, noise: f64) -> Vec<f64> {
    (0..6).map(|i| rate * (1.0 + noise * f64::from(i * 5 % 6 - 2) / 3.0)).collect()
}

fn blocks(rates: &[(u64, f64)], noise: f64) -> Run {
    let mut run = testing::empty_run(&[READ]);
    for &(block, rate) in rates {
        let case =
            Case::new().with_number("block", block).with_word(kelvin_core::AxisWord::from_names("cache", "cached"));
        add_scalars(&mut run, &READ, case, &rounds(rate, noise));
    }
    run
}

fn conclusions(run: &Run) -> Vec<StatedConclusion> {
    testing::study(run, "file.blocksize").map_or_else(Vec::new, |study| study.conclusions)
}

#[test]
fn first_sufficient_block_is_found() {
    let run = blocks(&[(1 << 20, 10e9), (4096, 6e9), (65_536, 9.5e9), (16 << 20, 9.8e9)], 0.01);
    let results = conclusions(&run);
    assert_eq!(results.len(), 2, "{results:#?}");
    let sufficient_text =
        "cached reads: a block size of 64 KiB is enough for 90 % of the rate with 1 MiB, 10.0 GB/s: it reaches 95 %";
    assert!(results[0].text.starts_with(sufficient_text), "{}", results[0].text);
    let insufficient_text = "4 KiB is not enough for 90 % of the rate with 1 MiB, 10.0 GB/s: it reaches 60 %";
    assert!(results[1].text.contains(insufficient_text), "{}", results[1].text);
    assert_eq!((results[0].holds, results[1].holds), (Some(true), Some(true)));
    assert!(results[0].test.contains("6 against 6 rounds"));
    // A finished run carries them.
    assert_eq!(analyse(&run).studies.iter().map(|study| study.id.as_str()).collect::<Vec<_>>(), ["file.blocksize"]);
}

#[test]
fn noise_leaves_block_undecided() {
    let results = conclusions(&blocks(&[(4096, 8.9e9), (65_536, 9.1e9), (1 << 20, 10e9)], 0.3));
    assert_eq!(results.len(), 2, "{results:#?}");
    assert!(results.iter().all(|conclusion| conclusion.holds.is_none()), "{results:#?}");
}

#[test]
fn best_block_not_tested_against_itself() {
    let results = conclusions(&blocks(&[(512, 1e9), (4096, 3e9), (65_536, 9e9)], 0.01));
    assert_eq!(results.len(), 1, "{results:#?}");
    let insufficient_text = "4 KiB is not enough for 90 % of the rate with 64 KiB, 9.02 GB/s: it reaches 33 %";
    assert!(results[0].text.contains(insufficient_text) && results[0].holds == Some(true), "{}", results[0].text);
}

#[test]
fn curve_needs_three_points_of_one_state() {
    let mut run = blocks(&[(4096, 3e9), (65_536, 9e9)], 0.01);
    assert!(testing::study(&run, "file.blocksize").is_none());
    let case =
        Case::new().with_number("block", 1 << 20).with_word(kelvin_core::AxisWord::from_names("cache", "direct"));
    add_scalars(&mut run, &READ, case, &rounds(1e9, 0.01));
    assert!(testing::study(&run, "file.blocksize").is_none());
}

#[test]
fn depth_curve_knee_is_found() {
    let mut run = testing::empty_run(&[DEPTH]);
    for (depth, rate) in [(1, 10e3), (4, 38e3), (16, 60e3), (64, 61e3), (256, 59e3)] {
        add_scalars(&mut run, &DEPTH, Case::new().with_number("depth", depth), &rounds(rate, 0.01));
    }
    let results = testing::study(&run, "file.depth").unwrap().conclusions;
    assert!(
        results[0].text.contains("a queue depth of 16 is enough for 90 % of the rate with 64, "),
        "{}",
        results[0].text
    );
    assert!(results[1].text.contains(": it reaches 62 %"), "{}", results[1].text);
    assert!(testing::study(&testing::empty_run(&[DEPTH]), "file.depth").is_none());
}

#[test]
fn much_faster_later_passes_show_cache() {
    const REPEAT: Metric = Metric::rate("file.device.repeat", "A ratio of passes")
        .unit(Unit::Ratio, Better::Neither)
        .headline(HeadlineSamples::AsFound);
    let conclusion_of = |ratio: f64, noise: f64| {
        let mut run = testing::empty_run(&[REPEAT]);
        add_scalars(&mut run, &REPEAT, Case::new(), &rounds(ratio, noise));
        testing::study(&run, "file.device").unwrap().conclusions.remove(0)
    };
    let (cached, uncached, open) = (conclusion_of(6.0, 0.05), conclusion_of(1.1, 0.05), conclusion_of(2.1, 0.5));
    assert_eq!((cached.holds, uncached.holds, open.holds), (Some(true), Some(false), None));
    assert!(cached.text.contains("as fast as the first: 6."), "{}", cached.text);
    assert!(testing::study(&testing::empty_run(&[REPEAT]), "file.device").is_none());
}

const SEQRAND: Metric = Metric::duration("file.seqrand", "A block").headline(HeadlineSamples::AsFound);
const CONTENTION: Metric = Metric::duration("file.contention", "A read").headline(HeadlineSamples::AsFound);

fn named_word(axis: &'static str, word: &'static str) -> kelvin_core::AxisWord {
    kelvin_core::AxisWord::from_names(axis, word)
}

/// What a study concludes from figures of one metric at cases.
fn study_conclusions(metric: &Metric, study: &str, figures: &[(Case, f64)]) -> Vec<StatedConclusion> {
    let mut run = testing::empty_run(std::slice::from_ref(metric));
    for (case, value) in figures {
        add_scalars(&mut run, metric, case.clone(), &rounds(*value, 0.01));
    }
    testing::study(&run, study).map_or_else(Vec::new, |study| study.conclusions)
}

#[test]
fn random_order_slows_uncached_reads_only() {
    let case = |order, cache| {
        Case::new()
            .with_number("bytes", 16 << 20)
            .with_word(named_word("order", order))
            .with_word(named_word("cache", cache))
    };
    let figures = [("sequential", "uncached", 5e3), ("random", "uncached", 100e3), ("sequential", "direct", 80e3)];
    let mut figures: Vec<(Case, f64)> =
        figures.iter().map(|&(order, cache, value)| (case(order, cache), value)).collect();
    figures.push((case("random", "direct"), 80e3));
    let results = study_conclusions(&SEQRAND, "file.seqrand", &figures);
    assert_eq!(results.len(), 2, "{results:#?}");
    let prefix = "uncached, 16 MiB: blocks at random take longer than in order: 20.0 times as long (95 %: ";
    assert!(results[0].text.starts_with(prefix), "{}", results[0].text);
    assert_eq!((results[0].holds, results[1].holds), (Some(true), None));
    assert!(results[1].test.contains("the same within 5.0 %"), "{}", results[1].test);
    assert!(study_conclusions(&SEQRAND, "file.seqrand", &figures[..1]).is_empty());
}

#[test]
fn read_order_answer_covers_all_sizes() {
    let run = |slower: f64| {
        let mut run = testing::empty_run(std::slice::from_ref(&SEQRAND));
        for (place, bytes) in [1_u64 << 20, 4 << 20, 16 << 20, 64 << 20].into_iter().enumerate() {
            let times = if place == 0 { slower } else { 20.0 + place as f64 };
            let reads =
                [("sequential", "uncached", 5e3), ("random", "uncached", 5e3 * times), ("sequential", "direct", 80e3)];
            for (order, cache, value) in reads.into_iter().chain([("random", "direct", 80e3)]) {
                let case = Case::new()
                    .with_number("bytes", bytes)
                    .with_word(named_word("order", order))
                    .with_word(named_word("cache", cache));
                add_scalars(&mut run, &SEQRAND, case, &rounds(value, 0.01));
            }
        }
        testing::study(&run, "file.seqrand").unwrap().answers
    };
    let [answer] = &run(30.0)[..] else { panic!("one answer") };
    assert_eq!(
        answer.text,
        "Uncached: blocks at random take longer than in order at all 4 file sizes, 21.0 to 30.0 times as long. \
         Direct: blocks at random take as long as in order within 5.0 % at all 4 file sizes."
    );
    let [answer] = &run(0.5)[..] else { panic!("one answer") };
    let prefix = "Uncached: blocks at random take longer than in order at 3 of 4 file sizes, 21.0 to 23.0 times as long, and less long at \
                  1, 0.50 times as long. Direct: ";
    assert!(answer.text.starts_with(prefix), "{}", answer.text);
}

#[test]
fn device_is_shared_evenly_from_two_threads() {
    let case = |threads: u64| {
        Case::new()
            .with_number("threads", threads)
            .with_word(named_word("files", "own"))
            .with_number("block", 1 << 20)
            .with_number("bytes", 64 << 20)
    };
    let even_results =
        study_conclusions(&CONTENTION, "file.contention", &[(case(1), 1.5e6), (case(2), 2e6), (case(16), 16e6)]);
    assert_eq!(even_results.len(), 2, "{even_results:#?}");
    let prefix = "direct reads of 1 MiB, each thread its own file of 64 MiB: a read takes longer with a second thread: 1.33 times";
    assert!(even_results[0].text.starts_with(prefix), "{}", even_results[0].text);
    assert_eq!((even_results[0].holds, even_results[1].holds), (Some(true), None));
    assert!(even_results[1].text.contains("it is 8.00 times as long (95 %: "), "{}", even_results[1].text);
    assert!(
        even_results[1].text.contains("for 8.00 times as many threads, 16.0 ms against 2.00 ms"),
        "{}",
        even_results[1].text
    );
    let worse = study_conclusions(&CONTENTION, "file.contention", &[(case(1), 1e6), (case(2), 2e6), (case(16), 48e6)]);
    assert_eq!(worse[1].holds, Some(true), "{}", worse[1].text);
}

#[test]
fn slow_large_blocks_and_cache_gain_reported() {
    let results = conclusions(&blocks(&[(4096, 3e9), (65_536, 9e9), (16 << 20, 3.4e9)], 0.01));
    let oversized = results.iter().find(|conclusion| conclusion.text.contains("16 MiB is too large")).unwrap();
    assert!(oversized.holds == Some(true) && oversized.text.contains("it is 38 % ("), "{}", oversized.text);
    let case = |cache| Case::new().with_number("block", 4096).with_word(named_word("cache", cache));
    let results = study_conclusions(&READ, "file.blocksize", &[(case("cached"), 5e9), (case("uncached"), 1e9)]);
    assert_eq!(results.len(), 1, "{results:#?}");
    let prefix = "in blocks of 4 KiB cached reads are faster than uncached ones: 5.00 times as fast";
    assert!(results[0].holds == Some(true) && results[0].text.starts_with(prefix), "{}", results[0].text);
}
