//! The core's true frequency, from a chain of multiplies of known latency in cycles.
//!
//! It converts times to core cycles. It must not be used as the rate of the time-stamp counter. Nor is it the frequency
//! under work that draws more power, such as wide vectors.

use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_core::catalogue::cpu::{BusyCpus, FREQUENCY};
use kelvin_sys::kernels;

use crate::background::{measure_with_threads, other_cpus};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "The core's frequency alone and with all allowed CPUs busy, from a chain of dependent multiplies",
    method: include_str!("frequency.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&FREQUENCY])
};

/// How far the predicted range extends beyond the stated frequencies, as a share.
const TOLERANCE: f64 = 0.02;
/// Highest boost frequency of an x86 processor sold.
const MAX_PLAUSIBLE_HERTZ: f64 = 6.2e9;

fn cases(machine: &Machine, _: Effort) -> Vec<Case> {
    let has_other_cpus = machine.topology.allowed.get().is_none_or(|cpus| cpus.len() > 1);
    let loads = if has_other_cpus { BusyCpus::ALL } else { &[BusyCpus::One] };
    words(loads)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    if BusyCpus::of(case) == Some(BusyCpus::All) {
        return time_chain_with_busy_cpus(bench);
    }
    bench.note(format!("a multiply takes {} cycles, by comparison with one-cycle adds", bench.multiply_cycles()?));
    time_chain(bench)
}

fn time_chain(bench: &mut Bench<'_>) -> ProbeResult {
    let cycles = kernels::CHAIN_LENGTH * u64::from(bench.multiply_cycles()?);
    bench.time_work(&FREQUENCY, cycles as f64, infallible(kernels::chain_multiply))
}

/// Like `time_chain`, while every other allowed CPU does the same work.
fn time_chain_with_busy_cpus(bench: &mut Bench<'_>) -> ProbeResult {
    let cpus = other_cpus(bench)?;
    bench.note(format!("{} other CPUs ran the same chain", cpus.len()));
    let stop = AtomicBool::new(false);
    let keep_busy = |_| {
        while !stop.load(Ordering::Relaxed) {
            kernels::chain_multiply(1000);
        }
        Ok(())
    };
    measure_with_threads("busy", &cpus, &stop, keep_busy, || time_chain(bench))
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    let cpu = &facts.machine().cpu;
    let stated_frequency = |name: &str, fact: &kelvin_core::Fact<f64>| {
        fact.get().map(|&hertz| published(name, hertz, Unit::Hertz, fact.source_or_reason()))
    };
    let highest = stated_frequency("highest frequency", &cpu.maximum_hz);
    let nominal = stated_frequency("nominal frequency", &cpu.nominal_hz)
        .or_else(|| stated_frequency("counter rate", &cpu.counter_hz));
    // How far cores exceed a nominal frequency does not apply to a stated maximum.
    let (expected, name, remark) = match (highest, nominal) {
        (Some(highest), nominal) => {
            let limit = highest.value();
            let low = nominal.as_ref().map_or(limit / 2.0, |nominal| nominal.value().min(limit));
            let highest = nominal.iter().fold(highest, Expr::with_input);
            let remark = "at most what is stated, and 2 % beyond";
            (highest.with_interval((low, limit)).with_maximum(limit), "maximum", remark)
        }
        (None, Some(nominal)) => {
            let (low, limit) = (nominal.value(), MAX_PLAUSIBLE_HERTZ.max(nominal.value()));
            let remark = "at most the highest of any x86 processor sold, as none is stated, and 2 % beyond";
            (nominal.with_interval((low, limit)), "nominal", remark)
        }
        (None, None) => return Err(NoPrediction::new("the machine states no frequency")),
    };
    Ok(expected.widen_by_share(TOLERANCE).explained(PredictionBasis::Spec, name, remark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;

    fn predicted(nominal: Option<f64>, highest: Option<f64>) -> Result<Prediction, NoPrediction> {
        let mut machine = testing::machine();
        let fact = |value: Option<f64>| value.map_or(Fact::unknown("a test"), |value| Fact::known(value, "a test"));
        (machine.cpu.counter_hz, machine.cpu.maximum_hz) = (fact(nominal), fact(highest));
        predict(&PredictionInputs::new(&machine, &|_, _| None), &FREQUENCY, &Case::new())
    }

    #[test]
    fn stated_maximum_frequency_is_predicted() {
        let prediction = predicted(Some(2e9), Some(4e9)).unwrap();
        assert_eq!((prediction.value, prediction.low, prediction.high), (4e9, 1.96e9, 4.08e9));
        assert_eq!(prediction.ceiling.map(|ceiling| (ceiling.limit, ceiling.range_end)), Some((4e9, 4.08e9)));
        let nominal = predicted(Some(2e9), None).unwrap();
        assert!(nominal.ceiling.is_none() && nominal.formula_name != prediction.formula_name);
        assert_eq!((nominal.value, nominal.high), (2e9, MAX_PLAUSIBLE_HERTZ * 1.02));
        assert!(predicted(None, None).is_err());
    }
}
