//! A procedure call and its return, with 0 to 7 arguments, by three kinds of call.
//!
//! It is the cost of a predicted call that is not inlined. It must not be used as the cost of a first call, of a
//! mispredicted one, or of the work of a callee.

use kelvin_core::catalogue::cpu::{ARGUMENTS, CALL_ARGS, CallKind};
use kelvin_sys::kernels::{self, CallLoop, MAX_ARGUMENTS};

use crate::prelude::*;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    id: CALL_ARGS.id.as_str(),
    summary: "A call and return with 0 to 7 arguments: direct, through a register, through a PLT stub",
    kind: ProbeKind::Measure,
    method: Method {
        how: "A loop of calls in assembly, so that nothing is inlined or eliminated. Each iteration moves every \
              argument into its place (on x86-64 the first six into edi, esi, edx, ecx, r8d, r9d and the seventh onto \
              the stack with a push; on aarch64 all seven into w0 to w6), calls, and counts. The callee adds every \
              argument to a running sum and returns: one instruction per argument on either side. The sum carries over \
              from call to call, so calls with many arguments cannot overlap. via=direct calls the label, via=indirect \
              a register, via=plt a stub that jumps through a slot in memory, as a procedure linkage table (PLT) does. \
              The sum is checked after every batch; a test compares the emitted bytes with the instructions stated \
              here. Loop control is not subtracted: its two instructions overlap with the call.",
        prediction: "The longer of two chains: a call and its return, and one dependent add per argument, a cycle each at the \
                     measured frequency. So arguments are free until their adds take longer than the call, and cost a \
                     cycle each from then on. A call and its return take as long as those without arguments in the \
                     same run; without arguments the published reciprocal throughputs, summed, divided by the frequency.",
        not_for: "A mispredicted call; a callee that does work; unoptimised code, which also saves a frame pointer and \
                  keeps arguments in memory (8 to 16 cycles in earlier studies).",
        pitfalls: &[
            "A callee that the compiler inlines or deletes is measured as an empty loop.",
            "On wide cores moving arguments is free in a stream of calls: the time is that of the callee's adds.",
            "Return and indirect branch predictors are warm.",
            "Some cores settle into one of several rhythms of call, return and jump (4, 5 or 6 cycles per call on one \
             Zen 5) until the next kernel entry: the modes are the core's, and the same loop in C shows them. With \
             seven arguments the chain of adds hides them.",
        ],
        sources: &[
            "System V Application Binary Interface, AMD64 supplement; Procedure Call Standard for the Arm 64-bit \
             Architecture (AAPCS64)",
            "Agner Fog, Instruction tables, 2022-11-04: CALL near and RET, reciprocal throughput",
            "lmbench lat_proc procedure",
        ],
    },
    metrics: &[&CALL_ARGS],
    cases,
    run,
    predict,
};

/// Predicted range, factor either way: published throughputs of a call and a return differ by half between tables.
const SPREAD: f64 = 1.5;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    const MAX: u64 = MAX_ARGUMENTS as u64;
    let every: Vec<u64> = (0..=MAX).collect();
    let others = by_effort(effort, [&[0][..], &[0, MAX], &every]);
    let cases_of = |counts: &[u64], kind: CallKind| numbers(ARGUMENTS, counts).words(&[kind]);
    [cases_of(&every, CallKind::Direct), cases_of(others, CallKind::Indirect), cases_of(others, CallKind::Plt)].concat()
}

/// The parameters of a case.
fn parameters(case: &Case) -> Option<(usize, kernels::CallPath)> {
    let via = match CallKind::of(case)? {
        CallKind::Direct => kernels::CallPath::Direct,
        CallKind::Indirect => kernels::CallPath::Indirect,
        CallKind::Plt => kernels::CallPath::Plt,
    };
    Some((usize::try_from(ARGUMENTS.number_in(case)?).ok()?, via))
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (arguments, loop_of_calls) = parameters(case)
        .and_then(|(arguments, via)| Some((arguments as u64, CallLoop::new(arguments, via)?)))
        .or_fail(format!("there is no call loop for the case {case}"))?;
    let argument_sum = arguments * (arguments + 1) / 2;
    bench.time(&CALL_ARGS, |calls| {
        let sum = loop_of_calls.run(calls);
        let expected = calls.wrapping_mul(argument_sum);
        if sum != expected {
            return Err(ProbeError::fail(format!("{calls} calls passed {sum} instead of {expected}")));
        }
        Ok(())
    })
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (arguments, _) = parameters(case).or_unpredicted(format!("there is no call loop for the case {case}"))?;
    if arguments > 0 {
        // The same call without arguments, or a cycle for each, whichever takes longer.
        let call = measured(facts, &CALL_ARGS, &case.clone().with_number(ARGUMENTS, 0))?;
        let source = "one instruction per argument in the callee's chain, one cycle each";
        let chain = fact("adds", arguments as f64, Unit::Cycles, source) / published::measured_frequency(facts)?;
        return Ok(call.max(chain).within(1.2).derived("call or adds"));
    }
    let pair = published::published_cycles(facts, |core| core.source, |core| core.call_and_return)?;
    let cycles = pair.expr("call and return").within(SPREAD).within_share(0.02);
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
                parameters(case).is_some_and(|(arguments, via)| CallLoop::new(arguments, via).is_some())
            }));
            // The points of the earlier study are always there.
            for arguments in 0..=7 {
                assert!(cases.contains(&Case::new().with_number(ARGUMENTS, arguments).with_word(CallKind::Direct)));
            }
        }
    }
}
