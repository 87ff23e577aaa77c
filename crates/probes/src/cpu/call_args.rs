//! A procedure call and its return, with 0 to 7 arguments, by three kinds of call.
//!
//! It is the cost of a predicted call that is not inlined. It must not be used as the cost of a first call, of a
//! mispredicted one, or of the work of a callee.

use kelvin_core::catalogue::cpu::{ARGUMENTS, CALL_ARGS, CallKind};
use kelvin_sys::kernels::{self, CallLoop, MAX_ARGUMENTS};

use crate::prelude::*;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    summary: "A call and return with 0 to 7 arguments: direct, through a register, through a PLT stub",
    method: include_str!("call_args.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&CALL_ARGS])
};

/// Predicted range, factor either way: published throughputs of a call and a return differ by half between tables.
const SPREAD: f64 = 1.5;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    const MAX: u64 = MAX_ARGUMENTS as u64;
    let argument_counts: Vec<u64> = (0..=MAX).collect();
    let indirect_counts = by_effort(effort, [&[0][..], &[0, MAX], &argument_counts]);
    let cases_of = |counts: &[u64], kind: CallKind| numbers(ARGUMENTS, counts).words(&[kind]);
    [
        cases_of(&argument_counts, CallKind::Direct),
        cases_of(indirect_counts, CallKind::Indirect),
        cases_of(indirect_counts, CallKind::Plt),
    ]
    .concat()
}

/// The parameters of a case.
fn parameters(case: &Case) -> Option<(usize, kernels::CallPath)> {
    let call_path = match CallKind::of(case)? {
        CallKind::Direct => kernels::CallPath::Direct,
        CallKind::Indirect => kernels::CallPath::Indirect,
        CallKind::Plt => kernels::CallPath::Plt,
    };
    Some((usize::try_from(ARGUMENTS.number_in(case)?).ok()?, call_path))
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (arguments, call_path) = required(parameters(case), case)?;
    let call_loop = required(CallLoop::new(arguments, call_path), case)?;
    let arguments = arguments as u64;
    let argument_sum = arguments * (arguments + 1) / 2;
    bench.time(&CALL_ARGS, |calls| {
        let sum = call_loop.run(calls);
        let expected = calls.wrapping_mul(argument_sum);
        if sum != expected {
            return Err(ProbeError::fail(format!("{calls} calls passed {sum} instead of {expected}")));
        }
        Ok(())
    })
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (arguments, _) = required(parameters(case), case)?;
    if arguments > 0 {
        // The same call without arguments, or a cycle for each, whichever takes longer.
        let call = measured(facts, &CALL_ARGS, &case.clone().with_number(ARGUMENTS, 0))?;
        let source = "one instruction per argument in the callee's chain, one cycle each";
        let chain = fact("adds", arguments as f64, Unit::Cycles, source) / published::measured_frequency(facts)?;
        return Ok(call.max(chain).widen(1.2).derived("call or adds"));
    }
    let pair = published::published_cycles(facts, |core| core.source, |core| core.call_and_return)?;
    let cycles = pair.expr("call and return").widen(SPREAD).widen_by_share(0.02);
    let call = (cycles / published::measured_frequency(facts)?)
        .source("Agner Fog, Instruction tables, 2022-11-04: reciprocal throughput of CALL near and RET");
    Ok(call.predict(PredictionBasis::Published, "call and return"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;
    use kelvin_harness::MeasuredValue;

    #[test]
    fn arguments_cost_a_cycle_beyond_call_latency() {
        let mut machine = testing::machine();
        machine.cpu.microarchitecture = Fact::known("Zen 3".into(), "a test");
        // At 1 GHz a call takes 4.5 cycles here, and 4 in publications.
        let measured = |id: &str, _: &Case| {
            let value = if id == CALL_ARGS.id.as_str() { 4.5 } else { 1e9 };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let cycles: Vec<f64> = (0..=7)
            .map(|arguments| Case::new().with_number(ARGUMENTS, arguments).with_word(CallKind::Direct))
            .map(|case| predict(&facts, &CALL_ARGS, &case).unwrap().value)
            .collect();
        assert_eq!(cycles, [4.0, 4.5, 4.5, 4.5, 4.5, 5.0, 6.0, 7.0]);
        assert!(predict(&facts, &CALL_ARGS, &Case::new()).is_err());
    }

    #[test]
    fn every_case_has_a_loop() {
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&testing::machine(), effort);
            assert!(cases.iter().all(|case| {
                parameters(case).is_some_and(|(arguments, call_path)| CallLoop::new(arguments, call_path).is_some())
            }));
            // The points of the earlier study are always there.
            for arguments in 0..=7 {
                assert!(cases.contains(&Case::new().with_number(ARGUMENTS, arguments).with_word(CallKind::Direct)));
            }
        }
    }
}
