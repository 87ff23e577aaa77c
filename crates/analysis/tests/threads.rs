//! Conclusions on threads: how many help, the law, and the best cell of the grid.

use kelvin_analysis::StatedConclusion;
use kelvin_analysis::testing::{self, add_scalars};
use kelvin_analysis::{Analysis, analyse};
use kelvin_core::catalogue::file::{BLOCK, THREAD_COUNT};
use kelvin_core::{Case, HeadlineSamples, Metric, Run};
use kelvin_stats::{Random, Scalability};

const METRIC: Metric = Metric::rate("file.threads", "Bytes read by all threads").headline(HeadlineSamples::AsFound);
const KIB: u64 = 1 << 10;

/// A run of rates by number of threads and block size, with a noise of one percent.
fn run_of(threads: &[u64], blocks: &[u64], rounds: usize, rate: impl Fn(f64, u64) -> f64) -> Run {
    let mut run = testing::empty_run(&[METRIC]);
    let mut random = Random::new(7);
    for &block in blocks {
        for &count in threads {
            let case = Case::new()
                .with_number("threads", count)
                .with_number("block", block)
                .with_word(kelvin_core::AxisWord::from_names("cache", "cached"));
            let round = |random: &mut Random| rate(count as f64, block) * (0.01 * random.normal()).exp();
            let values: Vec<f64> = (0..rounds).map(|_| round(&mut random)).collect();
            add_scalars(&mut run, &METRIC, case, &values);
        }
    }
    run
}

fn usl_rate(lambda: f64, sigma: f64, kappa: f64) -> impl Fn(f64, u64) -> f64 {
    let law = Scalability { lambda, sigma, kappa };
    move |n, _| law.throughput_at(n)
}

fn conclusions(run: &Run) -> Vec<StatedConclusion> {
    testing::study(run, "file.threads").map_or_else(Vec::new, |study| study.conclusions)
}

/// The conclusion whose text has these words.
fn conclusion_with<'c>(conclusions: &'c [StatedConclusion], words: &str) -> &'c StatedConclusion {
    conclusions
        .iter()
        .find(|conclusion| conclusion.text.contains(words))
        .unwrap_or_else(|| panic!("no {words:?}: {conclusions:#?}"))
}

#[test]
fn law_with_peak_has_known_coefficients() {
    // n* = sqrt(0.9 / 0.009) = 10.
    let run = run_of(&[1, 2, 4, 8, 16, 32], &[64 * KIB], 6, usl_rate(1e9, 0.1, 0.009));
    let results = conclusions(&run);
    let contention = conclusion_with(&results, "contention takes more than 1.0 % of the work");
    assert_eq!(contention.holds, Some(true));
    assert!(contention.text.starts_with("cached, in blocks of 64 KiB: ") && contention.test.contains("bootstrap"));
    let peak = conclusion_with(&results, "the rate falls before 32 threads");
    assert_eq!(peak.holds, Some(true), "{}", peak.text);
    assert!(peak.text.ends_with(" with 10 threads"), "{}", peak.text);
    let Analysis { laws, best_cells, .. } = analyse(&run);
    let [law] = &laws[..] else { panic!("{laws:?}") };
    assert!(
        law.describes
            && law.max_workers == 32
            && kelvin_core::catalogue::file::CacheState::Cached.point().is_in_case(&law.fixed),
        "{law:?}"
    );
    for (coefficient, truth) in [(law.lambda, 1e9), (law.sigma, 0.1), (law.kappa, 0.009)] {
        assert!(coefficient.lower < truth && truth < coefficient.upper && coefficient.upper < 1.5 * truth, "{law:?}");
    }
    assert!(law.peak_lower.unwrap() <= 10.0 && 10.0 <= law.peak_upper.unwrap(), "{law:?}");
    assert!(best_cells.is_empty(), "one block is no grid");
    // Eight and sixteen threads read about the same.
    assert_eq!(conclusion_with(&results, "more than 8 threads help by more than 11 %: 16 read").holds, Some(false));
}

#[test]
fn no_coherency_cost_gives_rising_rate() {
    let results = conclusions(&run_of(&[1, 2, 4, 8], &[4 * KIB], 6, usl_rate(1e9, 0.0, 0.0)));
    assert_eq!(conclusion_with(&results, "contention takes").holds, Some(false));
    assert_eq!(conclusion_with(&results, "falls before 8 threads").holds, Some(false));
    assert_eq!(conclusion_with(&results, "more than 4 threads help by more than 11 %: 8 read").holds, Some(true));
}

#[test]
fn falling_rate_peaks_at_one_thread() {
    // n* = sqrt(0.1 / 0.9) = 0.33.
    let run = run_of(&[1, 2, 4, 8], &[4 * KIB], 6, usl_rate(1e9, 0.9, 0.9));
    let peak = conclusion_with(&conclusions(&run), "falls before 8 threads").clone();
    assert_eq!(peak.holds, Some(true));
    assert!(peak.text.ends_with(" with 1 thread"), "{}", peak.text);
    let [law] = &analyse(&run).laws[..] else { panic!() };
    assert_eq!((law.peak, law.peak_lower, law.peak_upper), (Some(1.0), Some(1.0), Some(1.0)));
}

#[test]
fn peak_beyond_measured_is_not_named() {
    // n* = 100.
    let run = run_of(&[1, 2, 4, 8], &[4 * KIB], 6, usl_rate(1e9, 0.1, 9e-5));
    let peak = conclusion_with(&conclusions(&run), "falls before 8 threads").clone();
    assert_eq!(peak.holds, Some(false));
    assert!(peak.text.ends_with("it does not fall up to there"), "{}", peak.text);
    assert_eq!(analyse(&run).laws[0].peak, None);
}

#[test]
fn undescribed_and_undetermined_laws_are_reported() {
    let limited = run_of(&[1, 2, 4, 16], &[4 * KIB], 6, |n, _| 1e9 * n.min(2.0));
    let results = conclusions(&limited);
    let description = conclusion_with(&results, "the universal scalability law describes the rates");
    assert_eq!(description.holds, Some(false));
    assert!(results.iter().all(|conclusion| !conclusion.text.contains("contention")), "{results:#?}");
    assert_eq!(conclusion_with(&results, "more than 2 threads help").holds, Some(false));
    assert!(!analyse(&limited).laws[0].describes);

    let sparse = run_of(&[1, 4], &[4 * KIB], 6, usl_rate(1e9, 0.1, 0.0));
    let undetermined = conclusions(&sparse);
    let open = conclusion_with(
        &undetermined,
        "2 thread counts in 6 rounds each do not determine it; missing: 2 more thread counts",
    );
    assert_eq!(open.holds, None, "what was not measured refutes nothing");
    assert!(analyse(&sparse).laws.is_empty());
    let single_round = run_of(&[1, 2, 4, 8], &[4 * KIB], 1, usl_rate(1e9, 0.1, 0.0));
    conclusion_with(
        &conclusions(&single_round),
        "4 thread counts in 1 round each do not determine it; missing: a second round (",
    );
    assert!(testing::study(&testing::empty_run(&[METRIC]), "file.threads").is_none());
}

#[test]
fn best_cell_has_indistinguishable_rivals() {
    let grid = |rate: fn(f64, u64) -> f64| analyse(&run_of(&[1, 2, 4], &[4 * KIB, 64 * KIB], 6, rate)).best_cells;
    let clear = grid(|n, block| n * block as f64);
    let [cell] = &clear[..] else { panic!("{clear:?}") };
    assert_eq!((THREAD_COUNT.number_in(&cell.best), BLOCK.number_in(&cell.best)), (Some(4), Some(64 * KIB)));
    assert!(cell.equivalent.is_empty() && cell.conclusion.holds == Some(true));
    assert!(cell.conclusion.text.starts_with("cached: 4 threads in blocks of 64 KiB read fastest"), "{cell:?}");
    // Two threads and four of the larger block are equal: whichever came out ahead, the other may be as good.
    let shared = grid(|n, block| n.min(2.0) * block as f64);
    assert_eq!(shared[0].equivalent.len(), 1, "{shared:?}");
    assert_eq!(shared[0].conclusion.holds, None);
    assert!(shared[0].conclusion.text.contains("no different from "), "{shared:?}");
}
