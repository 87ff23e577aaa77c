//! What a run sets out to measure: probes at cases, in the order of reports, and what is left out and why.

use kelvin_model::{Case, Machine, Name, Planned, Reason};

use crate::{Effort, Kind, Probe};

/// One probe at one case.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The probe.
    pub probe: &'static Probe,
    /// The case.
    pub case: Case,
    /// Whether it is measured only as an input of predictions: then its minimum of rounds is enough.
    pub only_input: bool,
}

/// What a run sets out to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The units, in the order of reports.
    pub units: Vec<Unit>,
    /// What is left out for want of effort, with the reason.
    pub left_out: Vec<(Name, Case, Reason)>,
}

/// A name on the command line that selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no probe, metric or area is called '{name}'{}", suggestion(.nearest))]
pub struct UnknownName {
    /// The name.
    pub name: String,
    /// Names that it may have meant.
    pub nearest: Vec<String>,
}

fn suggestion(nearest: &[String]) -> String {
    if nearest.is_empty() {
        "; `kelvin list` shows all".into()
    } else {
        format!("; did you mean {}? `kelvin list` shows all", nearest.join(" or "))
    }
}

impl Plan {
    /// The plan of a run of the probes of one kind that `names` select: ids of probes or metrics, areas, or any leading
    /// part of an id up to a dot; none selects all. The inputs of their predictions come with them.
    ///
    /// # Errors
    /// A name that selects nothing.
    pub fn new(
        probes: &[&'static Probe],
        kind: Kind,
        names: &[String],
        machine: &Machine,
        effort: Effort,
    ) -> Result<Self, UnknownName> {
        let eligible: Vec<&'static Probe> = probes.iter().copied().filter(|probe| probe.kind == kind).collect();
        for name in names {
            if !eligible.iter().any(|probe| selects(name, probe)) {
                return Err(UnknownName { name: name.clone(), nearest: nearest(name, &eligible) });
            }
        }
        let asked =
            |probe: &Probe| probe.kind == kind && (names.is_empty() || names.iter().any(|name| selects(name, probe)));
        let needed = with_inputs(probes, probes.iter().filter(|probe| asked(probe)).map(|probe| probe.id).collect());
        let mut plan = Self { units: Vec::new(), left_out: Vec::new() };
        for probe in probes.iter().copied().filter(|probe| needed.contains(&probe.id)) {
            plan.add(probe, machine, effort, !asked(probe));
        }
        Ok(plan)
    }

    fn add(&mut self, probe: &'static Probe, machine: &Machine, effort: Effort, only_input: bool) {
        let chosen = (probe.cases)(machine, effort);
        if !only_input && effort < Effort::Default {
            let usual = (probe.cases)(machine, Effort::Default);
            let left_out = usual.into_iter().filter(|case| !chosen.contains(case));
            let reason = || Reason::new("left out by --quick; a default run measures it");
            self.left_out.extend(left_out.map(|case| (Name::new(probe.id), case, reason())));
        }
        self.units.extend(chosen.into_iter().map(|case| Unit { probe, case, only_input }));
    }

    /// This plan and what another one measures beside it. What both measure is measured once, in full if either does.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for unit in other.units {
            let same = |known: &&mut Unit| known.probe.id == unit.probe.id && known.case == unit.case;
            match self.units.iter_mut().find(same) {
                Some(known) => known.only_input &= unit.only_input,
                None => self.units.push(unit),
            }
        }
        let measured =
            |probe: Name, case: &Case| self.units.iter().any(|unit| *probe == *unit.probe.id && unit.case == *case);
        self.left_out.extend(other.left_out);
        self.left_out.retain(|(probe, case, _)| !measured(*probe, case));
        self
    }

    /// The plan as it is stored with the run; what is left out is part of it.
    pub fn planned(&self) -> Vec<Planned> {
        let units = self.units.iter().map(|unit| (unit.probe, unit.case.clone(), unit.only_input));
        let mut planned: Vec<Planned> =
            units.map(|(probe, case, only_input)| planned(probe, case, only_input)).collect();
        for (id, case, _) in &self.left_out {
            let last = planned.iter().rposition(|entry| entry.probe == *id);
            let metrics = last.map_or_else(Vec::new, |at| planned[at].metrics.clone());
            let at = last.map_or(planned.len(), |at| at + 1);
            planned.insert(at, Planned { probe: *id, metrics, case: case.clone(), only_input: false });
        }
        planned
    }
}

fn planned(probe: &Probe, case: Case, only_input: bool) -> Planned {
    let metrics = probe.metrics.iter().map(|metric| metric.id).collect();
    Planned { probe: Name::new(probe.id), metrics, case, only_input }
}

/// Whether a name selects a probe: its id, a leading part of it up to a dot, or the id of one of its metrics.
fn selects(name: &str, probe: &Probe) -> bool {
    let leads = |id: &str| id == name || id.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    leads(probe.id) || probe.metrics.iter().any(|metric| leads(&metric.id))
}

/// The probes with these ids and all that their predictions rest on.
fn with_inputs(probes: &[&'static Probe], mut ids: Vec<&'static str>) -> Vec<&'static str> {
    let mut next = 0;
    while let Some(&id) = ids.get(next) {
        next += 1;
        let Some(probe) = probes.iter().find(|probe| probe.id == id) else { continue };
        let missing: Vec<_> = probe.inputs.iter().copied().filter(|input| !ids.contains(input)).collect();
        ids.extend(missing);
    }
    ids
}

/// Up to three ids that look like a name.
fn nearest(name: &str, probes: &[&'static Probe]) -> Vec<String> {
    let mut near: Vec<(usize, &str)> = probes
        .iter()
        .flat_map(|probe| std::iter::once(probe.id).chain(probe.metrics.iter().map(|metric| metric.id.as_str())))
        .map(|id| (distance(name, id).min(distance(name, id.rsplit('.').next().unwrap_or(id)) + 1), id))
        .filter(|&(distance, _)| distance <= 1 + name.len() / 4)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(3).map(|(_, id)| id.to_owned()).collect()
}

/// Levenshtein's edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_plans_measure_once_what_both_measure() {
        static PROBE: Probe = Probe {
            id: "a.probe",
            summary: "",
            kind: Kind::Measure,
            method: crate::Method { how: "", prediction: "", not_for: "", pitfalls: &[], sources: &[] },
            metrics: &[],
            inputs: &[],
            cases: |_, _| Vec::new(),
            run: |_, _| Ok(()),
            predict: |_, _, _| Err(kelvin_model::NoPrediction::because("a test")),
        };
        let case = |n| Case::new().with("n", n);
        let plan = |cases: &[(u64, bool)], left_out: &[u64]| Plan {
            units: cases.iter().map(|&(n, only_input)| Unit { probe: &PROBE, case: case(n), only_input }).collect(),
            left_out: left_out.iter().map(|&n| (Name::new(PROBE.id), case(n), Reason::new("a test"))).collect(),
        };
        let both = plan(&[(1, true), (2, false)], &[3]).and(plan(&[(1, false), (2, true), (3, true)], &[4]));
        let units: Vec<(u64, bool)> =
            both.units.iter().map(|unit| (unit.case.integer("n").unwrap(), unit.only_input)).collect();
        assert_eq!(units, [(1, false), (2, false), (3, true)]);
        let left_out: Vec<u64> = both.left_out.iter().map(|(_, case, _)| case.integer("n").unwrap()).collect();
        assert_eq!(left_out, [4]);
    }

    #[test]
    fn edit_distances_are_levenshteins() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("os.fork", "os.fork"), 0);
    }
}
