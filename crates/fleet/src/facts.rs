//! Facts that differ between alike hosts: a host alone with a value, and values that go with being out.

use std::collections::{BTreeMap, BTreeSet};

use kelvin_core::{IndirectSort, PValue};
use kelvin_stats::{FALSE_DISCOVERY_RATE, LogFactorials, adjusted_p_values};

use crate::grouping::FactKey;
use crate::report::{DifferingFact, FactAssociation, OddFact};

/// The share of hosts that may have other values than all the rest and still be odd ones: as many as a maintenance that was left half-way.
const MAX_ODD_SHARE: f64 = 0.05;
/// The fewest peers that must agree.
const MIN_AGREEING_PEERS: usize = 3;
/// Values of a fact that are shown.
const MAX_VALUES: usize = 6;

/// The facts of the hosts of a group.
pub(crate) struct GroupFacts {
    hosts: usize,
    /// For each fact that differs the value of each host that knows it.
    differing: BTreeMap<FactKey, BTreeMap<usize, String>>,
}

impl GroupFacts {
    pub fn new(facts_of_hosts: &[BTreeMap<FactKey, String>]) -> Self {
        let mut facts: BTreeMap<FactKey, BTreeMap<usize, String>> = BTreeMap::new();
        for (host, facts_of_host) in facts_of_hosts.iter().enumerate() {
            for (key, text) in facts_of_host {
                facts.entry(key.clone()).or_default().insert(host, text.clone());
            }
        }
        facts.retain(|_, values| values.values().collect::<BTreeSet<_>>().len() > 1);
        Self { hosts: facts_of_hosts.len(), differing: facts }
    }

    /// The facts that differ, each with its values and how many hosts have them.
    pub fn differing(&self) -> Vec<DifferingFact> {
        let fact = |((group, label), values): (&FactKey, &BTreeMap<usize, String>)| DifferingFact {
            group: group.clone(),
            label: label.clone(),
            values: value_counts(values)
                .into_iter()
                .take(MAX_VALUES)
                .map(|(text, count)| (text.to_owned(), count))
                .collect(),
        };
        self.differing.iter().map(fact).collect()
    }

    /// The facts in which a host differs from its peers, of which nearly all have one value.
    pub fn odd_facts(&self, host: usize, is_peer: &[bool]) -> Vec<OddFact> {
        let odd_fact = |((group, label), values): (&FactKey, &BTreeMap<usize, String>)| {
            let value = values.get(&host)?;
            let counts = value_counts(values.iter().filter(|(peer, _)| **peer != host && is_peer[**peer]));
            let known_by: usize = counts.iter().map(|(_, count)| count).sum();
            let (peers, peers_with) = *counts.first()?;
            let max_odd_hosts = (((known_by + 1) as f64 * MAX_ODD_SHARE) as usize).max(1);
            let is_odd = value != peers && known_by - peers_with < max_odd_hosts && peers_with >= MIN_AGREEING_PEERS;
            is_odd.then(|| OddFact {
                group: group.clone(),
                label: label.clone(),
                value: value.clone(),
                peers: peers.to_owned(),
                peers_with,
                known_by,
            })
        };
        self.differing.iter().filter_map(odd_fact).collect()
    }

    /// The values that go with being out, by Fisher's exact test, corrected for all of them.
    pub fn associations(&self, is_outlier: &[bool]) -> Vec<FactAssociation> {
        let logs = LogFactorials::new(self.hosts);
        let mut associations = Vec::new();
        for ((group, label), values) in &self.differing {
            let outliers = values.keys().filter(|host| is_outlier[**host]).count();
            for (value, with) in value_counts(values) {
                let has_value = |host: &&usize| values.get(*host).is_some_and(|text| text == value);
                let outliers_with = values.keys().filter(|host| is_outlier[**host]).filter(has_value).count();
                let chance = logs.fisher_upper_tail(values.len(), outliers, with, outliers_with);
                associations.push(FactAssociation {
                    group: group.clone(),
                    label: label.clone(),
                    value: value.to_owned(),
                    outliers_with,
                    outliers,
                    others_with: with - outliers_with,
                    others: values.len() - outliers,
                    p_value: PValue::new(chance),
                });
            }
        }
        let chances: Vec<f64> = associations.iter().map(|association| association.p_value.raw).collect();
        for (association, adjusted) in associations.iter_mut().zip(adjusted_p_values(&chances)) {
            association.p_value.adjusted = adjusted;
        }
        associations.retain(|association| association.p_value.adjusted <= FALSE_DISCOVERY_RATE);
        associations.indirect_sort_by(|a, b| a.p_value.raw.total_cmp(&b.p_value.raw));
        associations
    }
}

/// The values with the number of hosts that have them, the most frequent first.
fn value_counts<'v>(values: impl IntoIterator<Item = (&'v usize, &'v String)>) -> Vec<(&'v str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    values.into_iter().for_each(|(_, text)| *counts.entry(text.as_str()).or_default() += 1);
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.indirect_sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(governors: &[&str]) -> GroupFacts {
        let key = ("CPU".to_owned(), "Frequency governor".to_owned());
        let of_host = |text: &&str| {
            BTreeMap::from([(key.clone(), (*text).to_owned()), (("a".into(), "b".into()), "same".into())])
        };
        GroupFacts::new(&governors.iter().map(of_host).collect::<Vec<_>>())
    }

    #[test]
    fn host_alone_with_a_value_is_odd() {
        let group = facts(&["performance", "performance", "powersave", "performance"]);
        let [odd] = &group.odd_facts(2, &[true; 4])[..] else { panic!() };
        assert_eq!((odd.value.as_str(), odd.peers.as_str(), odd.peers_with), ("powersave", "performance", 3));
        assert!(group.odd_facts(0, &[true; 4]).is_empty());
        assert_eq!(group.differing().len(), 1, "what all share is no difference");
        let split = facts(&["performance", "performance", "powersave", "powersave", "performance", "performance"]);
        // Against the hosts of another rack both are odd.
        let is_reference = [true, true, false, false, true, true];
        assert_eq!(split.odd_facts(3, &is_reference)[0].known_by, 4);
        assert!((0..6).all(|host| split.odd_facts(host, &[true; 6]).is_empty()), "a third of the hosts is not odd");
    }

    #[test]
    fn value_goes_with_outliers_by_fisher() {
        // 4 of 20 hosts are out and the same 4 have the other value: 1 of 4845.
        let governors: Vec<&str> = (0..20).map(|host| if host < 4 { "powersave" } else { "performance" }).collect();
        let is_outlier: Vec<bool> = (0..20).map(|host| host < 4).collect();
        let [association] = &facts(&governors).associations(&is_outlier)[..] else { panic!() };
        assert!((association.p_value.raw * 4845.0 - 1.0).abs() < 1e-9);
        // Of two values.
        assert!((association.p_value.adjusted * 4845.0 / 2.0 - 1.0).abs() < 1e-9);
        assert_eq!((association.outliers_with, association.others_with, association.others), (4, 0, 16));
        let is_mixed: Vec<bool> = (0..20).map(|host| host % 5 == 0).collect();
        assert!(facts(&governors).associations(&is_mixed).is_empty());
    }
}
