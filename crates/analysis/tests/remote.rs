//! Conclusions on a remote directory.

use kelvin_analysis::testing::{self, add_scalars};
use kelvin_core::catalogue::file::AccessOrder::{self, Random, Sequential};
use kelvin_core::catalogue::file::CacheState::{self, Cached, Direct, Uncached};
use kelvin_core::catalogue::file::{BYTES, LOCAL_BLOCK, REMOTE_BLOCK, REMOTE_REQUESTS, REMOTE_SHARE as SHARE};
use kelvin_core::{Case, Claim, Run};

const MIB: u64 = 1 << 20;

fn case(cache: CacheState, order: AccessOrder) -> Case {
    Case::new().with_word(cache).with_word(order).with_number(BYTES, 8 * MIB)
}

fn run(cases: &[(CacheState, AccessOrder, [f64; 5])]) -> Run {
    let mut run = testing::empty_run(&[SHARE]);
    for &(cache, order, shares) in cases {
        add_scalars(&mut run, &SHARE, case(cache, order), &shares);
    }
    run
}

#[test]
fn uncertain_remote_share_is_undecided() {
    let mut run = run(&[
        (Direct, Random, [0.90, 0.91, 0.89, 0.92, 0.90]),
        (Uncached, Sequential, [-0.2, 0.3, 0.1, -0.3, 0.2]),
        (Uncached, Random, [-0.50, -0.52, -0.51, -0.49, -0.50]),
    ]);
    add_scalars(&mut run, &SHARE, case(Direct, Random).with_number(BYTES, MIB), &[0.1, 0.2, 0.1]);
    let study = testing::study(&run, "file.remote").unwrap();
    let [slower, open, faster] = &study.conclusions[..] else { panic!("{study:#?}") };
    assert!(slower.text.starts_with("direct, 8 MiB, random reads: a remote block takes longer"), "{}", slower.text);
    assert!(slower.text.contains("remote access is 90 % ("), "{}", slower.text);
    assert_eq!((slower.holds, open.holds, faster.holds), (Some(true), None, Some(false)));
    assert!(open.text.ends_with("possibly none") && faster.text.ends_with(" less"), "{study:#?}");
    assert_eq!(testing::study(&testing::empty_run(&[SHARE]), "file.remote"), None);
}

/// Mean times of a block, in microseconds, and its requests.
struct Block {
    remote: f64,
    local: f64,
    requests: f64,
}

/// Five rounds of a block, a few percent apart.
fn add(run: &mut Run, case: &Case, block: &Block) {
    let rounds = [0.98, 1.03, 1.0, 0.99, 1.02];
    let remote_times = |value: f64| rounds.map(|factor| 1000.0 * value * factor);
    add_scalars(run, &REMOTE_BLOCK, case.clone(), &remote_times(block.remote));
    // Disturbances differ between the two.
    let local = rounds.map(|factor| 1000.0 * block.local * (2.0 - factor));
    add_scalars(run, &LOCAL_BLOCK, case.clone(), &local);
    let shares: Vec<f64> =
        remote_times(block.remote).iter().zip(local).map(|(remote, local)| 1.0 - local / remote).collect();
    add_scalars(run, &SHARE, case.clone(), &shares);
    add_scalars(run, &REMOTE_REQUESTS, case.clone(), &[block.requests; 5]);
}

fn run_with_orders(cache: CacheState, in_order: &Block, at_random: &Block) -> Run {
    let mut run = testing::empty_run(&[REMOTE_BLOCK, LOCAL_BLOCK, SHARE, REMOTE_REQUESTS]);
    add(&mut run, &case(cache, Sequential), in_order);
    add(&mut run, &case(cache, Random), at_random);
    run
}

/// Whether order matters less remotely, and in which words.
fn converges(run: &Run) -> Option<(Option<bool>, String)> {
    let study = testing::study(run, "file.remote").unwrap();
    let conclusion = study
        .conclusions
        .into_iter()
        .find(|candidate| matches!(candidate.conclusion.claim, Claim::OrderConverges { .. }))?;
    Some((conclusion.holds, conclusion.text))
}

#[test]
fn orders_converge_at_one_round_trip_each() {
    // 1 ms of network, and what a local disk makes of order.
    let [in_order, at_random] = [10.0, 100.0].map(|local| Block { remote: 1000.0 + local, local, requests: 1.0 });
    let (holds, text) = converges(&run_with_orders(Direct, &in_order, &at_random)).unwrap();
    assert_eq!(holds, Some(true), "{text}");
    assert!(text.starts_with("direct, 8 MiB: the order of reads matters less over the network: random"), "{text}");
    assert!(text.contains("take 1.09 times as long as sequential ones") && text.contains("10.0 times ("), "{text}");
    assert!(text.ends_with("; a block is 1.00 requests to the server in either order"), "{text}");
}

#[test]
fn orders_diverge_with_remote_readahead() {
    let in_order = Block { remote: 30.0, local: 10.0, requests: 0.018 };
    let at_random = Block { remote: 1100.0, local: 100.0, requests: 1.0 };
    let (holds, text) = converges(&run_with_orders(Uncached, &in_order, &at_random)).unwrap();
    assert_eq!(holds, Some(false), "{text}");
    assert!(text.contains("0.018 requests to the server in order, and 1.00 requests at random"), "{text}");
}

#[test]
fn equal_orders_leave_convergence_undecided() {
    let [in_order, at_random] = [100.0, 100.0].map(|local| Block { remote: 1000.0 + local, local, requests: 1.0 });
    assert_eq!(converges(&run_with_orders(Direct, &in_order, &at_random)).unwrap().0, None);
    let [in_order, at_random] = [1.0, 2.0].map(|local| Block { remote: local, local, requests: 0.0 });
    assert_eq!(converges(&run_with_orders(Cached, &in_order, &at_random)), None, "in memory there is no network");
}
