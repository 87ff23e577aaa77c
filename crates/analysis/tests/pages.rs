//! Conclusions of the page study.

use kelvin_analysis::analyse;
use kelvin_analysis::testing::{self, add_scalars};
use kelvin_model::{Better, Case, Metric, Treatment, Unit};

const fn metric(id: &'static str) -> Metric {
    Metric::duration(id, "A share of pages").unit(Unit::Ratio, Better::Neither).headline(Treatment::AsFound)
}

const PRESENT: Metric = metric("mem.page.present");
const ZERO: Metric = metric("mem.page.zero");
const EXCLUSIVE: Metric = metric("mem.page.exclusive");

#[test]
fn a_claim_holds_if_all_rounds_agree_fails_if_none_does_and_is_open_otherwise() {
    let mut run = testing::run(&[PRESENT, ZERO, EXCLUSIVE]);
    let kind = |word| Case::new().at(kelvin_model::Point::named("kind", word));
    add_scalars(&mut run, &PRESENT, kind("untouched"), &[0.0, 0.0, 0.002]);
    add_scalars(&mut run, &ZERO, kind("read"), &[0.0, 0.5, 0.9]);
    add_scalars(&mut run, &EXCLUSIVE, kind("written"), &[1.0, 1.0, 0.25]);
    let study = testing::study(&run, "mem.page").unwrap();
    let holds: Vec<Option<bool>> = study.conclusions.iter().map(|conclusion| conclusion.holds).collect();
    assert_eq!(holds, [Some(true), Some(false), None]);
    assert!(study.conclusions[2].test.contains("2 of 3 rounds agree"), "{}", study.conclusions[2].test);
    assert!(analyse(&run).studies.iter().any(|known| known.id == *"mem.page"));
}

#[test]
fn without_the_study_there_is_no_conclusion() {
    assert_eq!(testing::study(&testing::run(&[PRESENT]), "mem.page"), None);
}
