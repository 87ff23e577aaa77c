//! Predicted latency of a working set, from the latencies of the levels that hold it.
//!
//! One point of each level is measured, where nothing but that level can serve it, and is predicted by what is published of the level. All
//! other points follow from these: how many lines of a set a cache can hold at once, where its pages lie at random, and what a miss of the
//! TLB adds.

use kelvin_core::Cache;
use kelvin_core::catalogue::cpu::LATENCY_LOAD;
use kelvin_core::catalogue::mem::{BYTES, LATENCY, PageSize};

use crate::memory::memory_budget::{allowed_cpu_count, data_caches};
use crate::memory::published::{CACHE_LATENCIES, MEMORY_LATENCIES};
use crate::prelude::*;
use crate::published;

/// Core cycles, lowest and highest published, that a hit in the L2 TLB adds.
pub(super) const SECOND_TLB_CYCLES: [f64; 2] = [7.0, 9.0];
pub(super) const SECOND_TLB_SOURCE: &str = "Lam, Chips and Cheese: Goldmont Plus (9 cycles on Skylake, 8 on Goldmont \
                                            Plus, 7 on Zen 2) and Lion Cove: Intel's P-Core Roars (7 on Lion Cove and \
                                            Zen 5)";
/// Predicted range about latencies of levels, as a share.
const TOLERANCE: f64 = 0.05;
/// Bytes of a base page, and of its entry in the page table.
const PAGE_BYTES: u64 = 4096;
const PAGE_TABLE_ENTRY_BYTES: u64 = 8;
/// Entries of the first and second TLB where the machine does not state them: those of server cores since 2013 have no fewer.
const ASSUMED_TLB_ENTRIES: [u64; 2] = [64, 1024];
/// Of the last-level cache, what belongs to one CPU of a virtual machine, which sees the whole cache and nothing of its neighbours: the
/// share of a hardware thread where 16 of them have 32 MiB.
const LAST_LEVEL_PER_CPU: u64 = 2 << 20;
const LAST_LEVEL_SHARE_SOURCE: &str = "AMD, EPYC 9004 Series Architecture Overview (58015): 32 MiB of L3 to a core complex of eight cores with \
                            two threads each";
/// The set of which a virtual machine's last-level cache is most likely to hold a part, and larger ones where it holds all.
const PROBED_SET_BYTES: u64 = 16 << 20;
const LARGER_SET_BYTES: [u64; 2] = [32 << 20, 64 << 20];
/// From this share on a set is held, but for what others push out; below that one hardly; and the least that differs from nothing.
const MIN_HELD_SHARE: f64 = 0.9;
const MIN_PARTIAL_SHARE: f64 = 0.2;
const MIN_INFERRED_SHARE: f64 = 0.05;
/// A share of the lines that does not matter.
const NEGLIGIBLE_SHARE: f64 = 0.005;

/// What the caches are to a working set.
struct CacheModel {
    /// The first and second level, and the third where there is one: bytes and ways.
    first: u64,
    second: (u64, Option<u32>),
    third: Option<u64>,
    /// Bytes that the first and second TLB translate.
    reach: [u64; 2],
    is_virtual: bool,
    /// What a virtual machine has of the third level by a measured set, and its latency.
    guest_third: Option<(u64, Expr)>,
}

/// A point of the curve at which one level alone serves the loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LatencyLevel {
    Second,
    Third,
    Memory,
}

impl LatencyLevel {
    fn name(self) -> &'static str {
        match self {
            Self::Second => "L2",
            Self::Third => "L3",
            Self::Memory => "memory",
        }
    }
}

impl CacheModel {
    fn new(machine: &Machine) -> Predicted<Self> {
        let caches = data_caches(machine);
        let level = |level: u32, name: &str| {
            let cache = caches.iter().find(|cache| cache.level == level);
            cache.or_unpredicted(format!("the machine reports no size of its {name} cache"))
        };
        let (first, second) = (level(1, "L1")?, level(2, "L2")?);
        let is_virtual = machine.platform.hypervisor.get().is_some_and(Option::is_some);
        let share = if is_virtual { allowed_cpu_count(machine) * LAST_LEVEL_PER_CPU } else { u64::MAX };
        let third = caches.iter().find(|cache| cache.level == 3).map(|cache: &&Cache| cache.bytes.min(share));
        // Of the data TLB of a level for base pages.
        let reach = [1, 2].map(|level: u32| {
            let is_data_tlb = |tlb: &&kelvin_core::Tlb| {
                tlb.level == level && tlb.kind.holds_data() && tlb.page_bytes == PAGE_BYTES && tlb.entries > 0
            };
            let data_tlb = machine.cpu.tlbs.get().and_then(|tlbs| tlbs.iter().find(is_data_tlb));
            data_tlb.map_or(ASSUMED_TLB_ENTRIES[level as usize - 1], |tlb| u64::from(tlb.entries)) * PAGE_BYTES
        });
        Ok(Self {
            first: first.bytes,
            second: (second.bytes, second.ways),
            third,
            reach,
            is_virtual,
            guest_third: None,
        })
    }

    /// The point of a level, if there is room for it.
    fn level_case(&self, level: LatencyLevel, machine: &Machine) -> Option<Case> {
        let size_beyond = |inner_bytes: u64| (2 * inner_bytes).next_power_of_two();
        let (bytes, limit) = match level {
            LatencyLevel::Second => (size_beyond(self.first), self.second.0 / 2),
            LatencyLevel::Third => (size_beyond(self.second.0), self.third?),
            LatencyLevel::Memory => return Some(super::fewest_tlb_misses_case(machine)),
        };
        (bytes <= limit).then(|| super::base_page_case(bytes))
    }

    /// The share of the loads that the second level does not serve. Where pages lie at random, more lines fall into
    /// some sets than these have ways. Each of those lines has left when it is needed again.
    fn second_level_miss_rate(&self, bytes: u64, is_base: bool) -> f64 {
        let (size, ways) = self.second;
        match ways.filter(|&ways| is_base && size / u64::from(ways.max(1)) > PAGE_BYTES) {
            None => f64::from(u8::from(bytes > size)),
            Some(ways) => poisson_upper_tail(ways, bytes as f64 / size as f64 * f64::from(ways)),
        }
    }

    /// What a virtual machine has of the third level by a set that it holds in part: that of 16 MiB, else a larger one where it holds that,
    /// else a smaller one where it holds next to nothing of it. That set itself is inferred from those before it alone.
    fn guest_third_level(&self, facts: &PredictionInputs<'_>, case: &Case) -> Option<(u64, Expr)> {
        let stated_bytes = data_caches(facts.machine()).into_iter().find(|cache| cache.level == 3)?.bytes;
        if !self.is_virtual {
            return None;
        }
        let share_of = |bytes: u64| {
            let is_inferable = bytes <= stated_bytes && super::base_page_case(bytes) != *case;
            is_inferable.then(|| self.third_level_share(facts, bytes)).flatten()
        };
        let cache_bytes = |bytes: u64, share: f64| {
            (bytes as f64 / set_size_for_held_share(share.clamp(MIN_INFERRED_SHARE, MIN_HELD_SHARE))) as u64
        };
        let (first_share, latency) = share_of(PROBED_SET_BYTES)?;
        if first_share < MIN_PARTIAL_SHARE {
            let half = PROBED_SET_BYTES / 2;
            let half_estimate = share_of(half).map(|(share, latency)| (cache_bytes(half, share), latency));
            return half_estimate
                .or_else(|| Some((self.third?.min(cache_bytes(PROBED_SET_BYTES, first_share)), latency)));
        }
        if first_share < MIN_HELD_SHARE {
            return Some((cache_bytes(PROBED_SET_BYTES, first_share), latency));
        }
        let mut largest = (PROBED_SET_BYTES, latency);
        for bytes in LARGER_SET_BYTES {
            match share_of(bytes) {
                Some((share, latency)) if share >= MIN_HELD_SHARE => largest = (bytes, latency),
                Some((share, latency)) => return Some((cache_bytes(bytes, share), latency)),
                None => break,
            }
        }
        Some(largest)
    }

    /// The share of a set in base pages that the third level serves and memory does not.
    fn third_level_share(&self, facts: &PredictionInputs<'_>, bytes: u64) -> Option<(f64, Expr)> {
        let latency = measured(facts, &LATENCY, &super::base_page_case(bytes)).ok()?;
        let mut sum = LatencySum::new(facts, self).ok()?;
        sum.add_translation(bytes).ok()?;
        let (cache_latency, memory_latency) =
            (sum.latency(LatencyLevel::Third).ok()?, sum.latency(LatencyLevel::Memory).ok()?);
        let translation: f64 = sum.terms.iter().map(Expr::value).sum();
        let (cache_time, memory_time) = (cache_latency.value(), memory_latency.value());
        (cache_time < memory_time)
            .then(|| ((memory_time + translation - latency.value()) / (memory_time - cache_time), latency))
    }

    /// The share of the loads whose page the first or second TLB does not hold.
    fn tlb_miss_rate(&self, bytes: u64, level: usize) -> f64 {
        1.0 - (self.reach[level] as f64 / bytes as f64).min(1.0)
    }

    /// The level that holds page tables while loads in random order pass through it: between two uses of a line of them, each load brings
    /// a line of its own, and one of every table.
    fn page_table_level(&self, bytes: u64) -> LatencyLevel {
        let passing_bytes = (1 + self.page_table_reads()) * (bytes / PAGE_BYTES * PAGE_TABLE_ENTRY_BYTES);
        match self.third {
            _ if passing_bytes <= self.second.0 => LatencyLevel::Second,
            Some(_) => LatencyLevel::Third,
            None => LatencyLevel::Memory,
        }
    }

    /// Page tables that a translation reads: in a virtual machine the host's too.
    fn page_table_reads(&self) -> u64 {
        if self.is_virtual { 2 } else { 1 }
    }
}

/// The probability that a number with the Poisson distribution of this mean is at least this count. Of lines that fall
/// into sets at random it is also the share that lies in a set of more than this many.
fn poisson_upper_tail(min_count: u32, mean: f64) -> f64 {
    let (mut term, mut cumulative) = ((-mean).exp(), 0.0);
    for count in 0..min_count {
        cumulative += term;
        term *= mean / f64::from(count + 1);
    }
    (1.0 - cumulative).max(0.0)
}

/// The share that a cache holds of a set this many times its size, which is passed in the same order again and again. A
/// miss replaces any line. Of a set of S lines each pass misses (1 - h) S, and each miss leaves a line in a cache of C
/// with a chance of 1 - 1/C. So h = exp(-(1 - h) S / C).
fn lru_held_share(size_ratio: f64) -> f64 {
    if size_ratio <= 1.0 {
        return 1.0;
    }
    (0..FIXED_POINT_STEPS).fold(0.0, |share: f64, _| (-(1.0 - share) * size_ratio).exp())
}

/// Steps to the solution: enough where it comes slowest, for a set hardly larger than the cache.
const FIXED_POINT_STEPS: u32 = 1000;

/// The reverse: how many times the size of a cache a set is of which it holds such a share.
fn set_size_for_held_share(share: f64) -> f64 {
    -share.ln() / (1.0 - share)
}

/// The points at which L2 alone and L3 alone serve the loads, if both are there.
pub(crate) fn outer_cache_cases(machine: &Machine) -> Option<[Case; 2]> {
    let model = CacheModel::new(machine).ok()?;
    Some([model.level_case(LatencyLevel::Second, machine)?, model.level_case(LatencyLevel::Third, machine)?])
}

/// The latency at one working set.
pub(super) fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let bytes = required_number(BYTES, case)?;
    let is_base = PageSize::of(case) == Some(PageSize::Base);
    let machine = facts.machine();
    let model = CacheModel::new(machine)?;
    if bytes <= model.first {
        return first_level_latency(facts);
    }
    for level in [LatencyLevel::Second, LatencyLevel::Third] {
        if model.level_case(level, machine).as_ref() == Some(case) {
            return published_level_latency(facts, level);
        }
    }
    // The set of memory, or a larger one in such pages.
    let memory = super::fewest_tlb_misses_case(machine);
    let is_as_large = BYTES.number_in(&memory).is_some_and(|memory_bytes| bytes >= memory_bytes);
    if is_as_large && PageSize::of(case) == PageSize::of(&memory) {
        return published_level_latency(facts, LatencyLevel::Memory);
    }
    let model = CacheModel { guest_third: model.guest_third_level(facts, case), ..model };
    let mut sum = LatencySum::new(facts, &model)?;
    let second_misses = model.second_level_miss_rate(bytes, is_base);
    // The third level is spread over its sets by a hash, and does not replace the least recently used: of a larger set that is passed in
    // the same order again and again it would hold nothing.
    let third = model.guest_third.as_ref().map(|(bytes, _)| *bytes).or(model.third);
    let third_miss_rate = third.map_or(1.0, |third| 1.0 - lru_held_share(bytes as f64 / third as f64));
    let memory_share = second_misses * third_miss_rate;
    sum.add_level(LatencyLevel::Second, 1.0 - second_misses)?;
    sum.add_level(LatencyLevel::Third, second_misses - memory_share)?;
    sum.add_level(LatencyLevel::Memory, memory_share)?;
    if is_base {
        sum.add_translation(bytes)?;
    }
    Ok(sum.into_prediction())
}

/// A load from this many bytes of adjacent lines.
pub(crate) fn adjacent_lines_latency(facts: &PredictionInputs<'_>, bytes: u64) -> Predicted {
    if bytes <= CacheModel::new(facts.machine())?.first {
        return first_level_latency(facts);
    }
    let latency = measured(facts, &LATENCY, &super::base_page_case(bytes))?;
    Ok(latency.widen_by_share(TOLERANCE).derived("load of that set"))
}

/// A load from one line in each of this many base pages: as from adjacent lines, and what translation adds.
pub(crate) fn one_line_per_page_latency(facts: &PredictionInputs<'_>, adjacent: Expr, count: u64) -> Predicted {
    let model = CacheModel::new(facts.machine())?;
    let mut sum = LatencySum::new(facts, &model)?;
    (sum.low, sum.high) = (adjacent.value(), adjacent.value());
    sum.names.push("adjacent lines");
    sum.terms.push(adjacent);
    sum.add_translation(count * PAGE_BYTES)?;
    Ok(sum.into_prediction())
}

fn first_level_latency(facts: &PredictionInputs<'_>) -> Predicted {
    let load = measured(facts, &LATENCY_LOAD, &Case::new())?;
    Ok(load.widen_by_share(TOLERANCE).derived("load from L1"))
}

/// The point of a level, which follows from no measured figure: what is published of it.
fn published_level_latency(facts: &PredictionInputs<'_>, level: LatencyLevel) -> Predicted {
    let row = CACHE_LATENCIES.row(facts.machine());
    let ([minimum, maximum], source) = match (level, row) {
        (LatencyLevel::Memory, _) => return published_memory_latency(facts),
        (LatencyLevel::Second, row) => match row.ok().and_then(|row| Some((row.figures.second?, row.source))) {
            Some((cycles, source)) => ([cycles; 2], source),
            // L1 is searched first, then the tags of L2, and its data once they have a match.
            None => {
                let accesses = fact("accesses", SECOND_LEVEL_ACCESSES, Unit::Count, "L1, tags of L2, data of L2");
                let latency = accesses * measured(facts, &LATENCY_LOAD, &Case::new())?;
                return Ok(latency.of_value(SECOND_LEVEL_RANGE).derived("three accesses"));
            }
        },
        (LatencyLevel::Third, row) => {
            let row = row?;
            (row.figures.third.or_unpredicted("no latency of L3 is published for this core")?, row.source)
        }
    };
    let name = level.name();
    let cycles = published(name, f64::midpoint(minimum, maximum), Unit::Cycles, source);
    let cycles = cycles.with_interval((minimum, maximum + SECOND_TLB_CYCLES[1])).widen_by_share(TOLERANCE);
    let latency = cycles / published::measured_frequency(facts)?;
    Ok(latency.predict(PredictionBasis::Published, &format!("published latency of {name}")))
}

fn published_memory_latency(facts: &PredictionInputs<'_>) -> Predicted {
    let row = MEMORY_LATENCIES.row(facts.machine());
    let row = row.ok().or_unpredicted("no latency of its servers' memory is published for this core")?;
    let [minimum, maximum] = row.figures;
    let minimum = published("main memory, lowest", minimum, Unit::Nanoseconds, row.source);
    let maximum = published("main memory, highest", maximum, Unit::Nanoseconds, row.source);
    let latency = minimum.spanning(maximum).widen_by_share(TOLERANCE);
    Ok(latency.predict(PredictionBasis::Published, "published main memory"))
}

/// Accesses of a hit in L2 of which nothing is published.
const SECOND_LEVEL_ACCESSES: f64 = 3.0;
/// Predicted range about these: the published cores take 2.8 to 4.3 times as long as a load from L1.
const SECOND_LEVEL_RANGE: [f64; 2] = [0.8, 1.5];

/// A prediction as a sum of shares of levels, and of translations.
struct LatencySum<'a, 'b> {
    facts: &'a PredictionInputs<'b>,
    caches: &'a CacheModel,
    frequency: Expr,
    terms: Vec<Expr>,
    /// As if no line had been pushed out that fits.
    low: f64,
    /// As if the farthest of these levels served all.
    high: f64,
    names: Vec<&'static str>,
    /// Whether translations are part of it.
    translates: bool,
}

impl<'a, 'b> LatencySum<'a, 'b> {
    fn new(facts: &'a PredictionInputs<'b>, caches: &'a CacheModel) -> Predicted<Self> {
        let (frequency, terms, names) = (published::measured_frequency(facts)?, Vec::new(), Vec::new());
        Ok(Self { facts, caches, frequency, terms, low: f64::INFINITY, high: 0.0, names, translates: false })
    }

    /// A level's latency without translation, as measured at its point.
    fn latency(&self, level: LatencyLevel) -> Predicted<Expr> {
        let point = self.caches.level_case(level, self.facts.machine());
        let point = point.or_unpredicted(format!("no working set is served by {} alone", level.name()))?;
        let measured = match level {
            LatencyLevel::Memory => super::untranslated_latency(self.facts)?,
            _ => measured(self.facts, &LATENCY, &point)?,
        };
        let bytes = BYTES.number_in(&point).unwrap_or(0);
        let misses = self.caches.tlb_miss_rate(bytes, 0);
        if misses == 0.0 || PageSize::of(&point) != Some(PageSize::Base) {
            return Ok(measured);
        }
        Ok(measured - quantity("misses of the first TLB", misses, Unit::Ratio) * self.second_tlb_hit())
    }

    fn second_tlb_hit(&self) -> Expr {
        let [minimum, maximum] = SECOND_TLB_CYCLES;
        let cycles = quantity("hit in the second TLB", f64::midpoint(minimum, maximum), Unit::Cycles);
        cycles.source(SECOND_TLB_SOURCE) / self.frequency.clone()
    }

    fn add_level(&mut self, level: LatencyLevel, share: f64) -> Predicted<()> {
        if share < NEGLIGIBLE_SHARE {
            return Ok(());
        }
        let latency = self.latency(level)?;
        (self.low, self.high) = (self.low.min(latency.value()), self.high.max(latency.value()));
        self.names.push(level.name());
        self.terms.push(quantity(format!("share of {}", level.name()), share, Unit::Ratio) * latency);
        Ok(())
    }

    /// What base pages add: hits in the second TLB, and beyond it entries read from where the page tables lie.
    fn add_translation(&mut self, bytes: u64) -> Predicted<()> {
        let (first, second) = (self.caches.tlb_miss_rate(bytes, 0), self.caches.tlb_miss_rate(bytes, 1));
        if first < NEGLIGIBLE_SHARE {
            return Ok(());
        }
        self.translates = true;
        let hit = self.second_tlb_hit();
        let [minimum, maximum] = SECOND_TLB_CYCLES.map(|cycles| first * cycles * 1e9 / self.frequency.value());
        self.terms.push(quantity("misses of the first TLB", first, Unit::Ratio) * hit);
        let tables = self.caches.page_table_reads() as f64;
        // At most one more load from the farthest level for each table.
        let mut farthest = 0.0;
        if second >= NEGLIGIBLE_SHARE {
            let entry = self.latency(self.caches.page_table_level(bytes))?;
            self.terms.push(quantity("entries of page tables", second * tables, Unit::Ratio) * entry);
            farthest = second * tables * self.high;
        }
        self.low += minimum;
        self.high += maximum + farthest;
        Ok(())
    }

    fn into_prediction(self) -> Prediction {
        let levels = self.names.join(" and ");
        let name = if self.translates { format!("{levels}, with translations") } else { levels };
        let mut total = self.terms.into_iter().reduce(|sum, term| sum + term).expect("a set has lines");
        let (low, high) = (self.low.min(total.value()), self.high.max(total.value()));
        if let Some((bytes, latency)) = self.caches.guest_third.as_ref().filter(|_| self.names.len() > 1) {
            let share = fact("share of L3", *bytes as f64, Unit::Bytes, "of that set, what memory did not serve");
            total = total.with_input(latency).with_input(&share);
        } else if self.caches.is_virtual && self.names.len() > 1 {
            let bytes = LAST_LEVEL_PER_CPU as f64;
            total =
                total.with_input(&published("share of L3, for each CPU", bytes, Unit::Bytes, LAST_LEVEL_SHARE_SOURCE));
        }
        total.with_interval((low, high)).widen_by_share(TOLERANCE).derived(&name)
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::{CacheKind, Fact, MeasuredValue, Tlb};

    use super::*;
    use crate::testing;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// 32 KiB, 1 MiB of 8 ways and 32 MiB, TLBs of 64 and 2048 entries.
    fn machine(hypervisor: Option<&str>) -> Machine {
        let mut machine = testing::machine();
        let cache = |(level, bytes, ways): (u32, u64, u32)| Cache {
            level,
            kind: CacheKind::Unified,
            bytes,
            ways: Some(ways),
            line_bytes: Some(64),
            shared_by: vec![0],
        };
        let caches = [(1, 32 * KIB, 8), (2, MIB, 8), (3, 32 * MIB, 16)].map(cache);
        machine.topology.caches = Fact::known(caches.into(), "a test");
        machine.topology.allowed = Fact::known(vec![0, 1], "a test");
        machine.platform.hypervisor = Fact::known(hypervisor.map(str::to_owned), "a test");
        machine.memory.available_bytes = Fact::known(8 << 30, "a test");
        let tlb = |(level, entries)| Tlb { level, kind: CacheKind::Data, page_bytes: PAGE_BYTES, entries, ways: 4 };
        machine.cpu.tlbs = Fact::known([(1, 64), (2, 2048)].map(tlb).into(), "a test");
        machine
    }

    /// At 4 GHz: 1 ns in L1, 4 in L2, 14 in L3 (of which 1.5 are hits in the second TLB), 150 in memory.
    fn predict_set(machine: &Machine, bytes: u64, pages: PageSize) -> Result<Prediction, NoPrediction> {
        let measured = |id: &str, case: &Case| {
            let value = match (id, PageSize::of(case), BYTES.number_in(case)) {
                (id, ..) if *id == *LATENCY_LOAD.id => 1.0,
                (id, ..) if *id != *LATENCY.id => 4e9,
                (_, Some(PageSize::Huge), _) => 150.0,
                (_, _, Some(bytes)) if bytes == 64 * KIB => 4.0,
                (_, _, Some(bytes)) if bytes == 2 * MIB => 14.0 + 2.0 * 7.0 / 8.0,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        predict(
            &PredictionInputs::new(machine, &measured),
            &LATENCY,
            &Case::new().with_word(pages).with_number(BYTES, bytes),
        )
    }

    fn value(machine: &Machine, bytes: u64, pages: PageSize) -> f64 {
        predict_set(machine, bytes, pages).unwrap().value
    }

    #[test]
    fn poisson_tail_matches_set_conflicts() {
        assert_eq!(poisson_upper_tail(0, 3.0), 1.0);
        assert!((poisson_upper_tail(1, 2.0) - (1.0 - (-2.0f64).exp())).abs() < 1e-12);
        // By the tables of the Poisson distribution: 1 - P(X <= 7) at a mean of 8.
        assert!((poisson_upper_tail(8, 8.0) - 0.547_039).abs() < 1e-6);
        assert!(poisson_upper_tail(8, 2.0) < 0.002 && poisson_upper_tail(8, 24.0) > 0.999);
    }

    #[test]
    fn other_points_follow_from_level_points() {
        let machine = machine(None);
        let base = |bytes| value(&machine, bytes, PageSize::Base);
        assert_eq!((base(16 * KIB), base(32 * KIB)), (1.0, 1.0));
        assert!((base(128 * KIB) - 4.0).abs() < 0.001, "all of L2, in reach of the first TLB");
        // Half of the pages are beyond the first TLB: 8 cycles at 4 GHz; and 5 % lie in sets that are too full.
        let half_set = base(512 * KIB);
        assert!((half_set - (0.949 * 4.0 + 0.051 * 14.0 + 1.0)).abs() < 0.01, "{half_set}");
        // No more than L2 holds, in huge pages, which fill its sets evenly.
        assert_eq!(value(&machine, 512 * KIB, PageSize::Huge), 4.0);
        // In L3: what it takes at its point less the translation, and 15/16 of that.
        let third = base(4 * MIB);
        assert!((third - (14.0 + 2.0 * 15.0 / 16.0)).abs() < 0.01, "{third}");
        // L3 holds a fifth of 64 MiB; an entry of the page table for all but 8 MiB: 2 x 128 KiB stay in L2.
        let memory = base(64 * MIB);
        assert!((memory - (0.2032 * 14.0 + 0.7968 * 150.0 + 2.0 + 4.0 * 7.0 / 8.0)).abs() < 0.02, "{memory}");
        let words = predict_set(&machine, 64 * MIB, PageSize::Base).unwrap().derivation;
        assert_eq!(
            words,
            "0.203 x (15.8 ns - 0.875 x 8.00 cycles / 4.00 GHz) + 0.797 x 150 ns + 0.996 x 8.00 cycles / 4.00 GHz + 0.875 \
             x 4.00 ns = 128 ns"
        );
    }

    #[test]
    fn guest_has_cache_share_and_nested_tables() {
        let machine = machine(Some("KVM"));
        // 4 MiB for its two CPUs.
        let fifth_held = value(&machine, 8 * MIB, PageSize::Huge);
        assert!((fifth_held - (0.2032 * 14.0 + 0.7968 * 150.0)).abs() < 0.01, "{fifth_held}");
        let [bare_metal, guest] = [None, Some("KVM")]
            .map(|hypervisor| predict_set(&self::machine(hypervisor), 256 * MIB, PageSize::Base).unwrap().derivation);
        // 512 KiB of each table pass through with as many lines of data: no L2 of 1 MiB holds three of them.
        assert!(
            bare_metal.ends_with(" + 0.969 x 4.00 ns = 156 ns") && guest.contains(" + 1.94 x (15.8 ns - 0.875"),
            "{bare_metal}\n{guest}"
        );
    }

    #[test]
    fn cyclic_access_holds_less_than_size() {
        assert_eq!([0.5, 1.0].map(lru_held_share), [1.0, 1.0]);
        let share = lru_held_share(2.0);
        assert!((share - (-2.0 * (1.0 - share)).exp()).abs() < 1e-12 && (share - 0.2032).abs() < 1e-4, "{share}");
        for ratio in [1.2, 1.5, 3.0] {
            assert!((set_size_for_held_share(lru_held_share(ratio)) - ratio).abs() < 1e-6);
        }
    }

    #[test]
    fn guest_cache_share_is_inferred() {
        let machine = machine(Some("KVM"));
        // As above, and of these sets the time of the loads without what translation takes.
        let guest_bytes = |sets: &[(u64, f64)], bytes: u64| {
            let measured = |id: &str, case: &Case| {
                let model = CacheModel::new(&machine).unwrap();
                let value = match (PageSize::of(case), BYTES.number_in(case)) {
                    _ if *id == *LATENCY_LOAD.id => 1.0,
                    _ if *id != *LATENCY.id => 4e9,
                    (Some(PageSize::Huge), _) => 150.0,
                    (_, Some(bytes)) if bytes == 64 * KIB => 4.0,
                    (_, Some(bytes)) if bytes == 2 * MIB => 14.0 + 2.0 * 7.0 / 8.0,
                    (_, Some(bytes)) => {
                        let (_, loads) = sets.iter().find(|(set_bytes, _)| *set_bytes == bytes)?;
                        loads + 2.0 * model.tlb_miss_rate(bytes, 0) + 2.0 * 4.0 * model.tlb_miss_rate(bytes, 1)
                    }
                    _ => return None,
                };
                Some(MeasuredValue { value, half_width: 0.0 })
            };
            let facts = PredictionInputs::new(&machine, &measured);
            CacheModel::new(&machine)
                .unwrap()
                .guest_third_level(&facts, &crate::memory::latency::base_page_case(bytes))
                .map(|(bytes, _)| bytes)
        };
        let partial_latency = |times: f64| 150.0 - 136.0 * lru_held_share(times);
        let assert_close = |estimate: Option<u64>, bytes: u64| {
            assert!(estimate.unwrap().abs_diff(bytes) < bytes / 100, "{estimate:?}")
        };
        assert_close(guest_bytes(&[(16 * MIB, partial_latency(1.6))], 4 * MIB), 10 * MIB);
        // All of 16 MiB, and a part of 32.
        assert_close(guest_bytes(&[(16 * MIB, 14.0), (32 * MIB, partial_latency(1.6))], 4 * MIB), 20 * MIB);
        assert_eq!(guest_bytes(&[(16 * MIB, 14.0), (32 * MIB, partial_latency(1.6))], 32 * MIB), Some(16 * MIB));
        // Hardly anything of 16 MiB.
        assert_close(
            guest_bytes(&[(16 * MIB, partial_latency(4.0)), (8 * MIB, partial_latency(2.0))], 4 * MIB),
            4 * MIB,
        );
        assert_eq!(guest_bytes(&[(16 * MIB, partial_latency(1.6))], 16 * MIB), None, "a set tells nothing of itself");
    }

    #[test]
    fn level_points_use_published_latencies() {
        let mut machine = machine(None);
        let points = [LatencyLevel::Second, LatencyLevel::Third, LatencyLevel::Memory].map(|level| {
            let model = CacheModel::new(&machine).unwrap();
            model.level_case(level, &machine).unwrap()
        });
        let predicted = |machine: &Machine, case: &Case| {
            predict(
                &PredictionInputs::new(machine, &|_, _| Some(MeasuredValue { value: 4e9, half_width: 0.0 })),
                &LATENCY,
                case,
            )
        };
        assert_eq!(points.clone().map(|case| BYTES.number_in(&case).unwrap()), [64 * KIB, 2 * MIB, 256 * MIB]);
        // Nothing is published of an unknown core: L2 as three accesses.
        assert_eq!(
            points.clone().map(|case| predicted(&machine, &case).ok().map(|prediction| prediction.value)),
            [Some(12e9), None, None]
        );
        machine.cpu.microarchitecture = Fact::known("Zen 2".into(), "a test");
        let values = points.map(|case| predicted(&machine, &case).unwrap().value);
        assert_eq!(values[..2], [3.0, 10.0]);
        assert!((values[2] - (113.0f64 * 134.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn page_per_line_adds_translation() {
        let machine = machine(None);
        let measured = |id: &str, case: &Case| {
            let value = match BYTES.number_in(case) {
                _ if *id == *LATENCY_LOAD.id => 1.0,
                Some(_) => 4.0,
                None => 4e9,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        assert_eq!(adjacent_lines_latency(&facts, 16 * KIB).unwrap().value, 1.0);
        assert_eq!(adjacent_lines_latency(&facts, 64 * KIB).unwrap().value, 4.0);
        let lines = |value| fact("lines", value, Unit::Nanoseconds, "a test");
        let predicted = |value, count| one_line_per_page_latency(&facts, lines(value), count).unwrap().value;
        assert_eq!(predicted(1.0, 64), 1.0, "in the first TLB");
        assert_eq!(predicted(1.0, 256), 1.0 + 2.0 * 0.75);
        // Half of 4096 pages are in neither: an entry from L2.
        assert_eq!(predicted(4.0, 4096), 4.0 + 2.0 * 63.0 / 64.0 + 4.0 / 2.0);
    }
}
