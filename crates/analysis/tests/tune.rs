//! Conclusions on the search for the best setting.

use kelvin_analysis::StatedConclusion;
use kelvin_analysis::testing::{self, add_scalars};
use kelvin_core::{Better, Case, HeadlineSamples, Metric, Run, Unit};

const fn metric(id: &'static str, unit: Unit) -> Metric {
    Metric::duration(id, "What a search found").unit(unit, Better::Neither).headline(HeadlineSamples::AsFound)
}

const RATE: Metric = metric("file.tune", Unit::BytesPerSecond);
const GAIN: Metric = metric("file.tune.gain", Unit::Ratio);
const BLOCK: Metric = metric("file.tune.block", Unit::Bytes);
const THREADS: Metric = metric("file.tune.threads", Unit::Count);
const DEPTH: Metric = metric("file.tune.depth", Unit::Count);

/// An engine in a cache state, its rate and gain (in five rounds with 1 % of noise), and the blocks that its searches found.
type EngineRate = (&'static str, &'static str, f64, f64, [f64; 5]);

fn run(engines: &[EngineRate]) -> Run {
    let mut run = testing::empty_run(&[RATE, GAIN, BLOCK, THREADS, DEPTH]);
    for &(cache, engine, rate, gain, blocks) in engines {
        let case = Case::new()
            .with_word(kelvin_core::AxisWord::from_names("cache", cache))
            .with_word(kelvin_core::AxisWord::from_names("engine", engine));
        let with_noise = |value: f64| [0.99, 1.0, 1.01, 1.0, 0.99].map(|noise| value * noise);
        add_scalars(&mut run, &RATE, case.clone(), &with_noise(rate));
        add_scalars(&mut run, &GAIN, case.clone(), &with_noise(gain));
        add_scalars(&mut run, &BLOCK, case.clone(), &blocks);
        add_scalars(&mut run, &THREADS, case.clone(), &[2.0; 5]);
        add_scalars(&mut run, &DEPTH, case, &[16.0; 5]);
    }
    run
}

const KIB: f64 = 1024.0;

fn conclusion_with<'a>(conclusions: &'a [StatedConclusion], words: &str) -> &'a StatedConclusion {
    let matching = conclusions.iter().find(|conclusion| conclusion.text.contains(words));
    matching.unwrap_or_else(|| panic!("no conclusion about {words:?} in {conclusions:#?}"))
}

#[test]
fn best_setting_per_state_has_gain() {
    let blocks = [256.0 * KIB, 256.0 * KIB, 64.0 * KIB, 256.0 * KIB, 1024.0 * KIB];
    let study = testing::study(
        &run(&[
            ("cached", "pread", 20e9, 1.8, blocks),
            ("cached", "io_uring", 15e9, 1.3, [64.0 * KIB; 5]),
            ("direct", "pread", 2e9, 1.0, [64.0 * KIB; 5]),
            ("direct", "io_uring", 2.005e9, 1.0, [64.0 * KIB; 5]),
        ]),
        "file.tune",
    )
    .unwrap();
    let conclusions = &study.conclusions;
    assert_eq!(conclusions.len(), 4);
    let cached = conclusion_with(conclusions, "cached: pread (");
    assert!(cached.text.contains("blocks of 256 KiB, threads: 2, queue depth per thread: 16"), "{}", cached.text);
    assert!(
        cached.text.contains("1.80 times as fast (95 %: 1.7") && cached.text.ends_with("20.0 GB/s"),
        "{}",
        cached.text
    );
    assert!(cached.test.contains("3 of 5, 5 of 5, 5 of 5"), "{}", cached.test);
    assert_eq!(cached.holds, Some(true));
    assert_eq!(conclusion_with(conclusions, "cached: pread is fastest of 2 engines").holds, Some(true));
    assert_eq!(conclusion_with(conclusions, "direct: io_uring (").holds, None);
    let tie = conclusion_with(conclusions, "direct: io_uring is fastest");
    assert!(tie.text.ends_with("possibly as fast: pread") && tie.holds.is_none(), "{tie:?}");
}

#[test]
fn no_search_gives_no_study() {
    assert_eq!(testing::study(&testing::empty_run(&[]), "file.tune"), None);
    assert_eq!(testing::study(&run(&[]), "file.tune"), None);
}
