//! Conclusions of the page study.

use kelvin_analysis::analyse;
use kelvin_analysis::testing::{self, add_scalars};
use kelvin_core::{Better, Case, HeadlineSamples, Metric, Unit};

const fn metric(id: &'static str) -> Metric {
    Metric::duration(id, "A share of pages").unit(Unit::Ratio, Better::Neither).headline(HeadlineSamples::AsFound)
}

const PRESENT: Metric = metric("mem.page.present");
const ZERO: Metric = metric("mem.page.zero");
const EXCLUSIVE: Metric = metric("mem.page.exclusive");

#[test]
fn page_claim_follows_agreement_of_rounds() {
    let mut run = testing::empty_run(&[PRESENT, ZERO, EXCLUSIVE]);
    let kind = |word| Case::new().with_word(kelvin_core::AxisWord::from_names("kind", word));
    add_scalars(&mut run, &PRESENT, kind("untouched"), &[0.0, 0.0, 0.002]);
    add_scalars(&mut run, &ZERO, kind("read"), &[0.0, 0.5, 0.9]);
    add_scalars(&mut run, &EXCLUSIVE, kind("written"), &[1.0, 1.0, 0.25]);
    let study = testing::study(&run, "mem.page").unwrap();
    let holds: Vec<Option<bool>> = study.conclusions.iter().map(|conclusion| conclusion.holds).collect();
    assert_eq!(holds, [Some(true), Some(false), None]);
    assert!(study.conclusions[2].test.contains("2 of 3 rounds agree"), "{}", study.conclusions[2].test);
    assert!(analyse(&run).studies.iter().any(|study| study.id == *"mem.page"));
}

#[test]
fn no_page_metrics_give_no_study() {
    assert_eq!(testing::study(&testing::empty_run(&[PRESENT]), "mem.page"), None);
}
