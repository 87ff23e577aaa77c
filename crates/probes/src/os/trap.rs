//! The published cost of kernel entry and exit with the mitigations in force: the prediction of a null call.

use crate::prelude::*;
use crate::published;

pub(super) use crate::published::BEHRENS_SOURCE;

/// Instructions between `syscall` and `sysret` for a call that does next to nothing: saving, clearing and restoring
/// registers (some 60), dispatch (20) and the call (20). The work before and after it, with the checks of pending work
/// and of the return address, is 70.
const ENTRY_INSTRUCTIONS: f64 = 170.0;
/// Where they were counted.
const COUNTED_SOURCE: &str = "Linux 6.x, arch/x86/entry/entry_64.S (entry_SYSCALL_64), arch/x86/entry/common.c or syscall_64.c \
                       (do_syscall_64), kernel/sys.c (getppid)";
/// Instructions per cycle in code of pushes, pops and short branches, limited to one store and one taken branch per
/// cycle.
const INSTRUCTIONS_PER_CYCLE: f64 = 2.0;
/// Returns on that path: from the call's inner function, the call, the dispatcher and do_syscall_64.
const ENTRY_RETURNS: f64 = 4.0;
/// Predicted range, factor either way: the path differs by that much between kernel versions and configurations (audit,
/// context tracking, random stack offsets).
const SPREAD: f64 = 1.5;

/// Predicts a null call on this machine.
pub(super) fn predict(facts: &PredictionInputs<'_>) -> Predicted {
    let reason = "the table of published costs has no trap for this processor";
    unpredicted_if(facts.machine().architecture != *"x86_64", reason)?;
    let pair = |core: &published::PublishedCore| core.system_call.map(|[entry, exit]| entry + exit);
    let trap =
        published::published_cycles(facts, |_| BEHRENS_SOURCE, pair)?.expr("syscall and sysret").source(BEHRENS_SOURCE);
    let instructions = published("entry code, instructions", ENTRY_INSTRUCTIONS, Unit::Cycles, COUNTED_SOURCE);
    let (costs, unpublished) = mitigation_costs(facts)?;
    let cycles = costs.into_iter().fold(trap + instructions / INSTRUCTIONS_PER_CYCLE, |sum, cost| sum + cost);
    let call = cycles / published::measured_frequency(facts)?;
    let remark = match unpublished.is_empty() {
        true => String::new(),
        false => format!("not included, as not published: {}", unpublished.join(", ")),
    };
    Ok(call.widen(SPREAD).explained(PredictionBasis::Published, "instructions and mitigations", &remark))
}

/// The cost of the mitigations in force per call, and those without a published figure.
fn mitigation_costs(facts: &PredictionInputs<'_>) -> Predicted<(Vec<Expr>, Vec<String>)> {
    let Some(mitigations) = facts.machine().cpu.mitigations.get() else {
        return Ok((Vec::new(), vec!["mitigations, which are unknown".into()]));
    };
    let status = |name: &str| {
        mitigations
            .iter()
            .find(|mitigation| mitigation.vulnerability == name)
            .map_or("", |mitigation| mitigation.status.as_str())
    };
    let mut costs = Vec::new();
    let mut unpublished = Vec::new();
    let figure = |pick: fn(&published::PublishedCore) -> Option<f64>| {
        published::published_cycles(facts, |core| pick(&core.figures).map_or(core.source, |_| BEHRENS_SOURCE), pick)
    };
    if status("meltdown").contains("PTI") {
        costs.push(2.0 * figure(|core| core.table_switch)?.expr("page-table switch (PTI)"));
    }
    if ["mds", "tsx_async_abort", "mmio_stale_data", "reg_file_data_sampling", "tsa"]
        .iter()
        .any(|name| status(name).contains("Clear CPU buffers"))
    {
        costs.push(figure(|core| core.buffer_clearing)?.expr("clearing buffers"));
    }
    costs.extend(steered_return_cost(facts, ENTRY_RETURNS)?);
    if status("spectre_v2").contains("Retpolines") && has_indirect_dispatch(facts) {
        costs.push(misprediction_cost(facts, "retpoline in the dispatch", 1.0)?);
    }
    if status("retbleed").contains("IBRS") || status("spectre_v2").contains("Mitigation: IBRS") {
        unpublished.push("IBRS, two writes to a control register".into());
    }
    if status("spectre_v2").contains("BHI: SW loop") {
        unpublished.push("the loop that clears the branch history".into());
    }
    Ok((costs, unpublished))
}

/// The extra core cycles of this many kernel returns under a mitigation; `None` if there is none or it is unknown.
///
/// # Errors
/// If no cost of a misprediction is published.
pub(crate) fn steered_return_cost(facts: &PredictionInputs<'_>, returns: f64) -> Predicted<Option<Expr>> {
    let mitigations = facts.machine().cpu.mitigations.get().map_or(&[][..], Vec::as_slice);
    let has_status =
        |name: &str, text: &str| mitigations.iter().any(|m| m.vulnerability == name && m.status.contains(text));
    // Every kernel return is redirected to a safe target, and so mispredicted.
    let is_steered = has_status("spec_rstack_overflow", "Safe RET")
        || has_status("spec_rstack_overflow", "safe RET")
        || has_status("retbleed", "untrained return thunk");
    is_steered.then(|| misprediction_cost(facts, "mitigated returns", returns)).transpose()
}

/// Branches that the mitigation deliberately makes mispredict.
fn misprediction_cost(facts: &PredictionInputs<'_>, name: &str, branches: f64) -> Predicted<Expr> {
    let misprediction = published::published_cycles(facts, |core| core.source, |core| core.misprediction)?;
    let source = format!(
        "{branches} mispredicted branches of {} cycles ({}); Linux Documentation/admin-guide/hw-vuln/srso.rst and \
         spectre.rst: speculation is redirected to a safe target",
        misprediction.value, misprediction.source
    );
    Ok(published(name, branches * misprediction.value, Unit::Cycles, source))
}

/// Whether the kernel calls through its table of system calls; since 6.9 it compares and jumps instead.
fn has_indirect_dispatch(facts: &PredictionInputs<'_>) -> bool {
    is_kernel_before(facts, (6, 9))
}

/// Whether the kernel is older than a release, as one of an unknown release counts.
pub(super) fn is_kernel_before(facts: &PredictionInputs<'_>, release: (u32, u32)) -> bool {
    let running = facts.machine().kernel.release.get().map_or("", String::as_str);
    let mut numbers = running.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) < release,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::{Case, Fact, Machine};
    use kelvin_harness::MeasuredValue;

    fn machine(core: &str, release: &str, statuses: &[(&str, &str)]) -> Machine {
        let mut machine = testing::machine();
        machine.cpu.microarchitecture = Fact::known(core.into(), "a test");
        machine.kernel.release = Fact::known(release.into(), "a test");
        let mitigations = statuses
            .iter()
            .map(|&(name, status)| kelvin_core::Mitigation { vulnerability: name.into(), status: status.into() })
            .collect();
        machine.cpu.mitigations = Fact::known(mitigations, "a test");
        machine
    }

    /// The prediction at 1 GHz, so in cycles.
    fn predicted(machine: &Machine) -> Prediction {
        let measured = |_: &str, _: &Case| Some(MeasuredValue { value: 1e9, half_width: 0.0 });
        predict(&PredictionInputs::new(machine, &measured)).unwrap()
    }

    #[test]
    fn bare_call_is_trap_plus_entry() {
        let prediction = predicted(&machine("Zen 3", "6.12.1", &[]));
        assert_eq!(prediction.value, 138.0 + 85.0);
        assert_eq!(prediction.high, 223.0 * 1.5);
    }

    #[test]
    fn only_active_mitigations_are_added() {
        let skylake = machine(
            "Skylake",
            "4.19.0",
            &[
                ("meltdown", "Mitigation: PTI"),
                ("mds", "Mitigation: Clear CPU buffers; SMT vulnerable"),
                ("spectre_v2", "Mitigation: Retpolines; IBPB: conditional"),
            ],
        );
        assert_eq!(predicted(&skylake).value, 84.0 + 85.0 + 2.0 * 191.0 + 518.0 + 16.0);
        let zen_3 = machine(
            "Zen 3",
            "6.18.44",
            &[
                ("meltdown", "Not affected"),
                ("spec_rstack_overflow", "Mitigation: Safe RET"),
                ("spectre_v2", "Mitigation: Retpolines; BHI: Not affected"),
            ],
        );
        assert_eq!(predicted(&zen_3).value, 138.0 + 85.0 + 4.0 * 13.0);
        let ibrs = predicted(&machine("Skylake", "6.12.1", &[("retbleed", "Mitigation: IBRS")]));
        assert_eq!(ibrs.value, 84.0 + 85.0);
        assert!(ibrs.derivation.contains("IBRS"), "{}", ibrs.derivation);
    }

    #[test]
    fn unknown_core_uses_table_span() {
        let prediction = predicted(&machine("Zen 5", "6.18.44", &[]));
        assert_eq!(prediction.value, 94.0 + 85.0);
        assert_eq!((prediction.low, prediction.high), (135.0 / 1.5, 223.0 * 1.5));
        assert!(prediction.inputs[0].source.contains("no figure for Zen 5"));
    }
}
