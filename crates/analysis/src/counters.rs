//! What the processor counted for an operation.

use std::collections::BTreeMap;

use kelvin_core::units::trimmed_decimal;
use kelvin_core::{CountedOperations, EventRate, HardwareEvent, RoundOutcome};

use crate::prelude::*;

/// A count with three significant digits.
fn count_text(count: f64) -> String {
    let magnitude = if count > 0.0 { count.log10().floor() } else { 0.0 };
    trimmed_decimal(count, (2.0 - magnitude).clamp(0.0, 9.0) as usize)
}

/// The events of an operation of a metric, over the rounds of a measurement that counted.
pub(crate) fn event_rates(measurement: &Measurement, metric: Name) -> Vec<EventRate> {
    let mut counts: BTreeMap<HardwareEvent, Vec<f64>> = BTreeMap::new();
    for round in &measurement.rounds {
        let RoundOutcome::Measured(readings) = &round.outcome else { continue };
        let of_metric = readings.iter().filter(|reading| reading.metric == metric);
        for CountedOperations { operations, events, .. } in of_metric.filter_map(|reading| reading.counted.as_ref()) {
            for (&event, &count) in events.iter().filter(|_| *operations > 0) {
                counts.entry(event).or_default().push(count as f64 / *operations as f64);
            }
        }
    }
    counts.into_iter().map(|(event, counts)| EventRate { event, per_operation: median(&counts) }).collect()
}

/// `12.1 cycles, 4.03 instructions (0.333 a cycle), 0.98 misses of the last-level cache`; nothing of none.
pub fn event_rates_text(rates: &[EventRate]) -> Option<String> {
    let rate_of = |event| rates.iter().find(|rate| rate.event == event).map(|rate| rate.per_operation);
    let per_cycle = rate_of(HardwareEvent::Instructions).zip(rate_of(HardwareEvent::Cycles));
    let per_cycle = per_cycle.filter(|&(_, cycles)| cycles > 0.0).map(|(instructions, cycles)| instructions / cycles);
    let text = |rate: &EventRate| {
        let count = format!("{} {}", count_text(rate.per_operation), rate.event.words());
        match per_cycle.filter(|_| rate.event == HardwareEvent::Instructions) {
            Some(per_cycle) => format!("{count} ({} a cycle)", count_text(per_cycle)),
            None => count,
        }
    };
    (!rates.is_empty()).then(|| rates.iter().map(text).collect::<Vec<String>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{add_measurement, reading, round};
    use kelvin_core::catalogue::mem;
    use kelvin_core::{Case, Readings};

    #[test]
    fn rates_are_medians_over_rounds_that_counted() {
        let counted = |misses: u64| CountedOperations {
            operations: 1000,
            events: BTreeMap::from([(HardwareEvent::Cycles, 300_000), (HardwareEvent::LastLevelMisses, misses)]),
            excludes_kernel: false,
        };
        let with_counts = |counted: Option<CountedOperations>| {
            let mut reading = reading(&mem::LATENCY, Readings::Scalars(vec![100.0]));
            reading.counted = counted;
            reading
        };
        let mut run = crate::testing::guest::guest_run();
        let rounds = [Some(980), None, Some(990), Some(1400)].map(|misses| with_counts(misses.map(counted)));
        let rounds = rounds.into_iter().enumerate().map(|(index, reading)| round(index, vec![reading])).collect();
        add_measurement(&mut run, &mem::LATENCY, Case::new(), rounds);
        let rates = event_rates(run.measurements.last().unwrap(), mem::LATENCY.id);
        let rates: Vec<(HardwareEvent, f64)> = rates.iter().map(|rate| (rate.event, rate.per_operation)).collect();
        assert_eq!(rates, [(HardwareEvent::Cycles, 300.0), (HardwareEvent::LastLevelMisses, 0.99)]);
    }

    #[test]
    fn rates_are_worded_with_instructions_a_cycle() {
        let rate = |event, per_operation| EventRate { event, per_operation };
        let rates = [
            rate(HardwareEvent::Cycles, 12.0),
            rate(HardwareEvent::Instructions, 4.0),
            rate(HardwareEvent::TlbMisses, 0.0125),
        ];
        let text = event_rates_text(&rates).unwrap();
        assert_eq!(text, "12 cycles, 4 instructions (0.333 a cycle), 0.0125 misses of the data TLB");
        assert_eq!(event_rates_text(&[]), None);
    }
}
