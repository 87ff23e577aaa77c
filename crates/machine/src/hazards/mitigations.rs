//! Mitigations of processor vulnerabilities by what they do: a vulnerability's name says nothing of what its mitigation costs.

use kelvin_core::{Hazard, Mitigation, Severity};

use super::{HazardBuilder, HazardContext, hazard};

/// Something the kernel does against a vulnerability at every entry, exit, call or return.
struct Mechanism {
    name: &'static str,
    costs: &'static str,
    /// Parts of a status that mean it: `Documentation/admin-guide/hw-vuln` and `arch/x86/kernel/cpu/bugs.c` of Linux 6.18.
    status_texts: &'static [&'static str],
    /// The vulnerabilities in whose status they do; any, if there is none.
    vulnerabilities: &'static [&'static str],
}

static MECHANISMS: [Mechanism; 7] = [
    Mechanism {
        name: "page tables of the kernel's own",
        costs: "each entry and exit switches page tables",
        status_texts: &["PTI"],
        vulnerabilities: &["meltdown"],
    },
    Mechanism {
        name: "clearing of CPU buffers",
        costs: "each return to a program clears buffers",
        status_texts: &["Clear CPU buffers", "Clear CPU buffers attempted", "Clear Register File"],
        vulnerabilities: &[],
    },
    Mechanism {
        name: "IBPB at entry",
        costs: "each entry forgets all predicted branches",
        status_texts: &["IBPB"],
        vulnerabilities: &["retbleed", "spec_rstack_overflow"],
    },
    Mechanism {
        name: "IBRS",
        costs: "each entry and exit writes a register of the processor",
        status_texts: &["IBRS"],
        vulnerabilities: &["spectre_v2", "retbleed"],
    },
    Mechanism {
        name: "retpolines",
        costs: "no indirect call in the kernel is predicted",
        status_texts: &["Retpolines", "Enhanced / Automatic IBRS + Retpolines"],
        vulnerabilities: &["spectre_v2"],
    },
    Mechanism {
        name: "guarded returns",
        costs: "each return in the kernel takes a detour",
        status_texts: &["Safe RET", "safe RET", "untrained return thunk", "Stuffing"],
        vulnerabilities: &["retbleed", "spec_rstack_overflow"],
    },
    Mechanism {
        name: "no speculative store bypass",
        costs: "a load waits for the addresses of earlier stores",
        status_texts: &["Speculative Store Bypass disabled"],
        vulnerabilities: &["spec_store_bypass"],
    },
];

impl Mechanism {
    fn is_in_force(&self, all: &[Mitigation]) -> bool {
        let concerned = all.iter().filter(|one| {
            self.vulnerabilities.is_empty() || self.vulnerabilities.contains(&one.vulnerability.as_str())
        });
        concerned.flat_map(|one| status_parts(&one.status)).any(|part| self.status_texts.contains(&part))
    }
}

/// All that are in force.
fn active_mechanisms(all: &[Mitigation]) -> Vec<&'static Mechanism> {
    MECHANISMS.iter().filter(|mechanism| mechanism.is_in_force(all)).collect()
}

/// The parts of a status, without its first word: also of one that leaves the machine vulnerable, and mitigates in part.
fn status_parts(status: &str) -> impl Iterator<Item = &str> {
    let after = ["Mitigation: ", "Vulnerable: "].iter().find_map(|word| status.strip_prefix(word));
    after.unwrap_or_default().split([';', ',']).map(str::trim)
}

pub(super) fn active_mitigations(look: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &look.machine.cpu.mitigations;
    let all = fact.get()?;
    let names: Vec<&str> =
        all.iter().filter(|one| one.status.starts_with("Mitigation")).map(|one| one.vulnerability.as_str()).collect();
    let does = active_mechanisms(all);
    let (summary, effect) = match (does.as_slice(), names.as_slice()) {
        ([], []) => return None,
        ([], names) => {
            let effect = "a few instructions more at kernel entry and exit and at process switches";
            (format!("mitigations in force, none of them costly: {}", names.join(", ")), effect.to_owned())
        }
        (does, _) => {
            let listed = |of: fn(&Mechanism) -> &'static str, by: &str| {
                does.iter().map(|mechanism| of(mechanism)).collect::<Vec<_>>().join(by)
            };
            (format!("mitigations in force: {}", listed(|one| one.name, ", ")), listed(|one| one.costs, "; "))
        }
    };
    Some(
        hazard("mitigations", Severity::Note, summary, &effect)
            .affecting(&["os.", "file.", "net."])
            .remedy_advice("boot with mitigations=off, only on a machine that runs no untrusted code")
            .with_source(fact.source_or_reason()),
    )
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
        active_mechanisms(&all).iter().map(|mechanism| mechanism.name).collect()
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
