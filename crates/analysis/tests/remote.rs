//! Conclusions on a remote directory.

use kelvin_analysis::testing::{self, add_scalars};
use kelvin_catalogue::file::{AccessOrder, CacheState, REMOTE_SHARE as SHARE};
use kelvin_model::{Case, Run};

fn run(cases: &[(CacheState, AccessOrder, [f64; 5])]) -> Run {
    let mut run = testing::run(&[SHARE]);
    for &(cache, order, shares) in cases {
        add_scalars(&mut run, &SHARE, Case::new().at(cache).at(order), &shares);
    }
    run
}

#[test]
fn the_share_of_remote_access_is_open_where_it_is_not_certain() {
    let study = testing::study(
        &run(&[
            (CacheState::Direct, AccessOrder::Random, [0.90, 0.91, 0.89, 0.92, 0.90]),
            (CacheState::Uncached, AccessOrder::Sequential, [-0.2, 0.3, 0.1, -0.3, 0.2]),
            (CacheState::Uncached, AccessOrder::Random, [-0.50, -0.52, -0.51, -0.49, -0.50]),
        ]),
        "file.remote",
    )
    .unwrap();
    let [certain, open, faster] = &study.conclusions[..] else { panic!("{study:#?}") };
    assert!(certain.text.starts_with("direct, random reads: a remote block takes longer"), "{}", certain.text);
    assert!(certain.text.contains("remote access is 90 % ("), "{}", certain.text);
    assert_eq!((certain.holds, open.holds, faster.holds), (Some(true), None, Some(false)));
    assert!(open.text.ends_with("possibly none") && faster.text.ends_with(" less"), "{study:#?}");
    assert_eq!(testing::study(&testing::run(&[SHARE]), "file.remote"), None);
}
