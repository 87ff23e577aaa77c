//! Mitigations of processor vulnerabilities by what they do: a vulnerability's name says nothing of what its mitigation costs.

use kelvin_core::{Hazard, Mitigation, Severity};

use super::{HazardContext, hazard};
use crate::root::data_lines;

/// Mechanisms: name, cost, parts of a status that mean it, and the vulnerabilities in whose status they do, by tabs.
const MECHANISMS: &str = include_str!("../../data/mitigations.txt");

/// The name and the cost of each mechanism that is in force.
fn active_mechanisms(all: &[Mitigation]) -> Vec<[&'static str; 2]> {
    // Parts of a status, without its first word: also of one that leaves the machine vulnerable, and mitigates in part.
    let parts = |status: &str, texts: &str| {
        let after = ["Mitigation: ", "Vulnerable: "].iter().find_map(|word| status.strip_prefix(word));
        after.unwrap_or_default().split([';', ',']).any(|part| texts.split(", ").any(|text| text == part.trim()))
    };
    let in_force = |row: &'static str| {
        let [name, cost, texts, vulnerabilities] = row.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let is_concerned = |one: &Mitigation| {
            vulnerabilities == "*" || vulnerabilities.split(", ").any(|known| known == one.vulnerability)
        };
        all.iter().any(|one| is_concerned(one) && parts(&one.status, texts)).then_some([name, cost])
    };
    data_lines(MECHANISMS).filter_map(in_force).collect()
}

pub(super) fn active_mitigations(look: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &look.machine.cpu.mitigations;
    let all = fact.get()?;
    let names: Vec<&str> =
        all.iter().filter(|one| one.status.starts_with("Mitigation")).map(|one| one.vulnerability.as_str()).collect();
    let active = active_mechanisms(all);
    let found = |summary: String| hazard("mitigations", Severity::Note, summary, fact.source_or_reason());
    match (active.is_empty(), names.is_empty()) {
        (true, true) => None,
        (true, false) => Some(found(format!("mitigations in force, none of them costly: {}", names.join(", ")))),
        (false, _) => {
            let [names, costs] = [(0, ", "), (1, "; ")]
                .map(|(column, by)| active.iter().map(|mechanism| mechanism[column]).collect::<Vec<_>>().join(by));
            Some(Hazard { effect: costs, ..found(format!("mitigations in force: {names}")) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[(&str, &str)]) -> Vec<&'static str> {
        let one = |&(vulnerability, status): &(&str, &str)| Mitigation {
            vulnerability: vulnerability.to_owned(),
            status: status.to_owned(),
        };
        let all: Vec<Mitigation> = all.iter().map(one).collect();
        active_mechanisms(&all).into_iter().map(|[name, _]| name).collect()
    }

    #[test]
    fn kernel_statuses_map_to_mechanisms() {
        let buffers = ["clearing of CPU buffers"].as_slice();
        let known: [((&str, &str), &[&str]); 13] = [
            (("meltdown", "Mitigation: PTI"), &["page tables of the kernel's own"]),
            (("mds", "Mitigation: Clear CPU buffers; SMT vulnerable"), buffers),
            (("mds", "Vulnerable: Clear CPU buffers attempted, no microcode; SMT Host state unknown"), buffers),
            (("reg_file_data_sampling", "Mitigation: Clear Register File"), buffers),
            (("retbleed", "Mitigation: IBRS"), &["IBRS"]),
            (("retbleed", "Mitigation: untrained return thunk; SMT vulnerable"), &["guarded returns"]),
            (("spec_rstack_overflow", "Mitigation: Safe RET"), &["guarded returns"]),
            (("spec_rstack_overflow", "Vulnerable: Safe RET, no microcode"), &["guarded returns"]),
            (("spec_rstack_overflow", "Vulnerable: Microcode, no safe RET"), &[]),
            (("spec_rstack_overflow", "Mitigation: IBPB on VMEXIT only"), &[]),
            (
                ("spectre_v2", "Mitigation: Retpolines; IBPB: conditional; STIBP: disabled; RSB filling"),
                &["retpolines"],
            ),
            (("spectre_v2", "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; BHI: BHI_DIS_S"), &[]),
            (("spec_store_bypass", "Mitigation: Speculative Store Bypass disabled via prctl"), &[]),
        ];
        for (status, expected) in known {
            assert_eq!(names(&[status]), expected, "{status:?}");
        }
        let both = [("spectre_v2", "Mitigation: Retpolines"), ("spec_rstack_overflow", "Mitigation: Safe RET")];
        assert_eq!(names(&both), ["retpolines", "guarded returns"]);
        assert!(names(&[("gather_data_sampling", "Not affected"), ("tsa", "Vulnerable")]).is_empty());
    }
}
