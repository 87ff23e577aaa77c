//! The interval of a headline covers repeated runs in the stated share of cases.

mod simulation;

use simulation::{Method, Model, simulate};

const RUNS: usize = 600;

fn assert_covers(model: Model, rounds: usize, method: Method, at_least: f64, at_most: f64) {
    let cell = simulate(model, rounds, RUNS, &[method])[0];
    assert!(
        (at_least..=at_most).contains(&cell.covers),
        "{} rounds, {}, {}: covers {:.3}",
        rounds,
        model.name(),
        method.name(),
        cell.covers
    );
}

#[test]
fn own_rounds_suffice_where_runs_differ_by_their_rounds_only() {
    for model in [Model::Normal, Model::Skewed, Model::HeavyTails, Model::WildRounds, Model::Drift] {
        for rounds in [5, 6, 10, 20] {
            assert_covers(model, rounds, Method::Ours(0), 0.90, 0.985);
        }
    }
}

#[test]
fn history_covers_what_differs_from_run_to_run() {
    for rounds in [3, 6, 10, 20] {
        for earlier in [5, 20] {
            for model in [Model::Normal, Model::RunComponent, Model::SmallRunComponent] {
                assert_covers(model, rounds, Method::Ours(earlier), 0.90, 0.985);
            }
        }
    }
    // Without history no method can know of a component between runs: the test would see a method that cheats.
    assert!(simulate(Model::RunComponent, 20, RUNS, &[Method::Ours(0)])[0].covers < 0.6);
}

#[test]
fn the_interval_of_a_repeat_holds_it_where_states_of_the_machine_outlast_rounds() {
    let next = |rounds, method| simulate(Model::LastingStates, rounds, RUNS, &[method])[0].next;
    for rounds in [5, 6, 8, 10, 20] {
        for method in [Method::OfARepeat(0), Method::OfARepeat(5), Method::OfARepeat(20)] {
            let held = next(rounds, method);
            assert!((0.90..=0.99).contains(&held), "{rounds} rounds, {}: holds a repeat in {held:.3}", method.name());
        }
        // The usual one does not, which is why there is another.
        assert!(next(rounds, Method::Ours(0)) < 0.85, "{rounds} rounds");
    }
}

#[test]
fn a_bootstrap_of_few_rounds_covers_too_little() {
    assert_covers(Model::Normal, 3, Method::Bootstrap, 0.70, 0.82);
}
