//! Predicted latency of a working set, from the latencies of the levels that hold it.
//!
//! One point of each level is measured, where nothing but that level can serve it, and is predicted by what is published of the level. All
//! other points follow from these: how many lines of a set a cache can hold at once, where its pages lie at random, and what a miss of the
//! TLB adds.

use kelvin_catalogue::cpu::LATENCY_LOAD;
use kelvin_catalogue::mem::{BYTES, LATENCY, PageSize};
use kelvin_harness::Facts;
use kelvin_model::{Basis, Cache, CacheKind, Case, Input, Machine, Metric, NoPrediction, Prediction, Unit};

use super::allowance::{allowed, data_caches};
use super::{latency, published as hierarchy};
use crate::predict::Predicting;
use crate::published;

/// Core cycles, lowest and highest published, that a hit in the L2 TLB adds.
pub(super) const SECOND_TLB: [f64; 2] = [7.0, 9.0];
pub(super) const SECOND_TLB_SOURCE: &str = "Lam, Chips and Cheese: Goldmont Plus (9 cycles on Skylake, 8 on Goldmont \
                                            Plus, 7 on Zen 2) and Lion Cove: Intel's P-Core Roars (7 on Lion Cove and \
                                            Zen 5)";
/// Predicted range about latencies of levels, as a share.
const TOLERANCE: f64 = 0.05;
/// Bytes of a base page, and of its entry in the page table.
const PAGE: u64 = 4096;
const ENTRY: u64 = 8;
/// Entries of the first and second TLB where the machine does not state them: those of server cores since 2013 have no fewer.
const ASSUMED_ENTRIES: [u64; 2] = [64, 1024];
/// Of the last-level cache, what belongs to one CPU of a virtual machine, which is told of the whole cache and nothing of its neighbours: the
/// share of a hardware thread where 16 of them have 32 MiB.
const SHARE_OF_CPU: u64 = 2 << 20;
const SHARE_SOURCE: &str = "AMD, EPYC 9004 Series Architecture Overview (58015): 32 MiB of L3 to a core complex of eight cores with \
                            two threads each";
/// The set of which a virtual machine's last-level cache is most likely to hold a part, and larger ones where it holds all.
const TELLING: u64 = 16 << 20;
const LARGER: [u64; 2] = [32 << 20, 64 << 20];
/// From this share on a set is held, but for what others push out; below that one hardly; and the least that is told from nothing.
const HELD: f64 = 0.9;
const HARDLY: f64 = 0.2;
const LEAST_SHARE: f64 = 0.05;
/// A share of the lines that does not matter.
const NONE: f64 = 0.005;

/// What the caches are to a working set.
struct Hierarchy {
    /// The first and second level, and the third where there is one: bytes and ways.
    first: u64,
    second: (u64, Option<u32>),
    third: Option<u64>,
    /// Bytes that the first and second TLB translate.
    reach: [u64; 2],
    is_virtual: bool,
    /// What a virtual machine has of the third level by a measured set, and its latency.
    own_third: Option<(u64, Input)>,
}

/// A point of the curve at which one level alone serves the loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Second,
    Third,
    Memory,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Second => "L2",
            Self::Third => "L3",
            Self::Memory => "memory",
        }
    }
}

impl Hierarchy {
    fn of(machine: &Machine) -> Result<Self, NoPrediction> {
        let caches = data_caches(machine);
        let level = |level: u32, name: &str| {
            let found = caches.iter().find(|cache| cache.level == level);
            found.ok_or_else(|| NoPrediction::because(format!("the machine reports no size of its {name} cache")))
        };
        let (first, second) = (level(1, "L1")?, level(2, "L2")?);
        let is_virtual = machine.platform.hypervisor.get().is_some_and(Option::is_some);
        let share = if is_virtual { allowed(machine) * SHARE_OF_CPU } else { u64::MAX };
        let third = caches.iter().find(|cache| cache.level == 3).map(|cache: &&Cache| cache.bytes.min(share));
        let reach =
            [0, 1].map(|index: usize| entries(machine, index as u32 + 1).unwrap_or(ASSUMED_ENTRIES[index]) * PAGE);
        Ok(Self { first: first.bytes, second: (second.bytes, second.ways), third, reach, is_virtual, own_third: None })
    }

    /// The point of a level, if there is room for it.
    fn point(&self, level: Level, machine: &Machine) -> Option<Case> {
        let beyond = |inner: u64| (2 * inner).next_power_of_two();
        match level {
            Level::Second => Some(beyond(self.first)).filter(|&bytes| bytes <= self.second.0 / 2),
            Level::Third => Some(beyond(self.second.0)).filter(|&bytes| self.third.is_some_and(|third| bytes <= third)),
            Level::Memory => return Some(latency::largest_without_translation(machine)),
        }
        .map(latency::in_base_pages)
    }

    /// The share of the loads that the second level does not serve: where pages lie at random, lines that fall into a set together are more
    /// than its ways in some sets, and of those every one has left when it is wanted again.
    fn missed_by_second(&self, bytes: u64, is_base: bool) -> f64 {
        let (size, ways) = self.second;
        match ways.filter(|&ways| is_base && size / u64::from(ways.max(1)) > PAGE) {
            None => f64::from(u8::from(bytes > size)),
            Some(ways) => at_least(ways, bytes as f64 / size as f64 * f64::from(ways)),
        }
    }

    /// What a virtual machine has of the third level by a set that it holds in part: that of 16 MiB, else a larger one where it holds that,
    /// else a smaller one where it holds next to nothing of it. That set itself is told by those before it alone.
    fn own_third(&self, facts: &Facts<'_>, case: &Case) -> Option<(u64, Input)> {
        let stated = data_caches(facts.machine()).into_iter().find(|cache| cache.level == 3)?.bytes;
        if !self.is_virtual {
            return None;
        }
        let tells = |bytes: u64| {
            let may = bytes <= stated && latency::in_base_pages(bytes) != *case;
            may.then(|| self.share_of_third(facts, bytes)).flatten()
        };
        let holds = |bytes: u64, share: f64| (bytes as f64 / times_held(share.clamp(LEAST_SHARE, HELD))) as u64;
        let (first, there) = tells(TELLING)?;
        if first < HARDLY {
            let told = tells(TELLING / 2).map(|(share, there)| (holds(TELLING / 2, share), there));
            return told.or_else(|| Some((self.third?.min(holds(TELLING, first)), there)));
        }
        if first < HELD {
            return Some((holds(TELLING, first), there));
        }
        let mut held = (TELLING, there);
        for bytes in LARGER {
            match tells(bytes) {
                Some((share, there)) if share >= HELD => held = (bytes, there),
                Some((share, there)) => return Some((holds(bytes, share), there)),
                None => break,
            }
        }
        Some(held)
    }

    /// The share of a set in base pages that the third level serves and memory does not.
    fn share_of_third(&self, facts: &Facts<'_>, bytes: u64) -> Option<(f64, Input)> {
        let there = facts.measured(&LATENCY, &latency::in_base_pages(bytes)).ok()?;
        let mut sum = Sum::new(facts, self, true).ok()?;
        sum.translate(bytes).ok()?;
        let (near, far) = (sum.latency(Level::Third).ok()?, sum.latency(Level::Memory).ok()?);
        (near < far).then(|| ((far + sum.value - there.value) / (far - near), there))
    }

    /// The share of what the second level misses that the third does not hold: it is spread over its sets by a hash, and does not replace
    /// the least recently used, of which a set larger than it that is passed in the same order again and again would find nothing.
    fn missed_by_third(&self, bytes: u64) -> f64 {
        let third = self.own_third.as_ref().map(|(bytes, _)| *bytes).or(self.third);
        third.map_or(1.0, |third| 1.0 - share_held(bytes as f64 / third as f64))
    }

    /// The share of the loads whose page the first or second TLB does not hold.
    fn untranslated(&self, bytes: u64, which: usize) -> f64 {
        1.0 - (self.reach[which] as f64 / bytes as f64).min(1.0)
    }

    /// The level that holds page tables while loads in random order pass through it: between two uses of a line of them, each load brings
    /// a line of its own, and one of every table.
    fn holds_tables(&self, bytes: u64) -> Level {
        let held = (1 + self.tables()) * (bytes / PAGE * ENTRY);
        if held <= self.second.0 {
            Level::Second
        } else if self.third.is_some() {
            Level::Third
        } else {
            Level::Memory
        }
    }

    /// Page tables that a translation reads: in a virtual machine the host's too.
    fn tables(&self) -> u64 {
        if self.is_virtual { 2 } else { 1 }
    }
}

/// Entries of the data TLB of a level for base pages.
fn entries(machine: &Machine, level: u32) -> Option<u64> {
    let fits = |tlb: &&kelvin_model::Tlb| {
        tlb.level == level && tlb.kind != CacheKind::Instruction && tlb.page_bytes == PAGE && tlb.entries > 0
    };
    machine.cpu.tlbs.get()?.iter().find(fits).map(|tlb| u64::from(tlb.entries))
}

/// The probability that a number with the Poisson distribution of this mean is at least so large. Of lines that fall into sets at random it
/// is also the share that lies in a set of more than so many.
fn at_least(least: u32, mean: f64) -> f64 {
    let (mut term, mut below) = ((-mean).exp(), 0.0);
    for count in 0..least {
        below += term;
        term *= mean / f64::from(count + 1);
    }
    (1.0 - below).max(0.0)
}

/// The share that a cache holds of a set so many times its size, which is passed in the same order again and again, where a miss replaces
/// any line: of a set of S lines each pass misses (1 - h) S, each of which leaves a line in a cache of C with a chance of 1 - 1/C; so that
/// h = exp(-(1 - h) S / C).
fn share_held(times: f64) -> f64 {
    if times <= 1.0 {
        return 1.0;
    }
    (0..PASSES).fold(0.0, |share: f64, _| (-(1.0 - share) * times).exp())
}

/// Steps to the solution: enough where it comes slowest, for a set hardly larger than the cache.
const PASSES: u32 = 1000;

/// The reverse: how many times the size of a cache a set is of which it holds such a share.
fn times_held(share: f64) -> f64 {
    -share.ln() / (1.0 - share)
}

/// The points at which L2 alone and L3 alone serve the loads, if both are there.
pub(super) fn outer_caches(machine: &Machine) -> Option<[Case; 2]> {
    let known = Hierarchy::of(machine).ok()?;
    Some([known.point(Level::Second, machine)?, known.point(Level::Third, machine)?])
}

/// The latency at one working set.
pub(super) fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let bytes = BYTES.of(case).ok_or_else(|| NoPrediction::because("the case has no bytes"))?;
    let is_base = PageSize::of(case) == Some(PageSize::Base);
    let machine = facts.machine();
    let known = Hierarchy::of(machine)?;
    if bytes <= known.first {
        return in_first(facts);
    }
    for level in [Level::Second, Level::Third] {
        if known.point(level, machine).as_ref() == Some(case) {
            return at_point(facts, level);
        }
    }
    if is_of_memory(machine, case, bytes) {
        return at_point(facts, Level::Memory);
    }
    let known = Hierarchy { own_third: known.own_third(facts, case), ..known };
    let mut sum = Sum::new(facts, &known, is_base)?;
    let beyond_second = known.missed_by_second(bytes, is_base);
    let beyond_third = beyond_second * known.missed_by_third(bytes);
    sum.add(Level::Second, 1.0 - beyond_second)?;
    sum.add(Level::Third, beyond_second - beyond_third)?;
    sum.add(Level::Memory, beyond_third)?;
    if is_base {
        sum.translate(bytes)?;
    }
    Ok(sum.prediction())
}

/// Whether a set is that of memory, or a larger one in such pages.
fn is_of_memory(machine: &Machine, case: &Case, bytes: u64) -> bool {
    let point = latency::largest_without_translation(machine);
    PageSize::of(case) == PageSize::of(&point) && BYTES.of(&point).is_some_and(|least| bytes >= least)
}

/// A load from so many bytes of adjacent lines.
pub(super) fn in_adjacent_lines(facts: &Facts<'_>, bytes: u64) -> Result<Prediction, NoPrediction> {
    if bytes <= Hierarchy::of(facts.machine())?.first {
        return in_first(facts);
    }
    let there = facts.measured(&LATENCY, &latency::in_base_pages(bytes))?;
    let (low, high) = (there.value * (1.0 - TOLERANCE), there.value * (1.0 + TOLERANCE));
    Ok(Predicting::between(Basis::Derived, there.value, low, high)
        .formula("load of that set", "a load from a set of that size")
        .input(there.clone())
        .derived_as(format!("{:.2} ns", there.value)))
}

/// A load from one line in each of so many base pages: as from adjacent lines, and what translation adds.
pub(super) fn in_pages(facts: &Facts<'_>, adjacent: Input, count: u64) -> Result<Prediction, NoPrediction> {
    let known = Hierarchy::of(facts.machine())?;
    let mut sum = Sum::new(facts, &known, true)?;
    (sum.value, sum.low, sum.high) = (adjacent.value, adjacent.value, adjacent.value);
    sum.terms.push(format!("{:.2} ns of adjacent lines", adjacent.value));
    sum.names.push("adjacent lines");
    sum.inputs.push(adjacent);
    sum.translate(count * PAGE)?;
    Ok(sum.prediction())
}

fn in_first(facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
    let load = facts.measured(&LATENCY_LOAD, &Case::new())?;
    let (low, high) = (load.value * (1.0 - TOLERANCE), load.value * (1.0 + TOLERANCE));
    Ok(Predicting::between(Basis::Derived, load.value, low, high)
        .formula("load from L1", "a load from L1")
        .input(load.clone())
        .derived_as(format!("{:.2} ns", load.value)))
}

/// The point of a level, which nothing measured tells: what is published of it.
fn at_point(facts: &Facts<'_>, level: Level) -> Result<Prediction, NoPrediction> {
    let none = |name: &str| NoPrediction::because(format!("no latency of {name} is published for this core"));
    let ([least, most], name, source) = match level {
        Level::Memory => {
            let (range, source) = hierarchy::main_memory(facts.machine()).ok_or_else(|| none("its servers' memory"))?;
            let value = (range[0] * range[1]).sqrt();
            let (low, high) = (range[0] * (1.0 - TOLERANCE), range[1] * (1.0 + TOLERANCE));
            return Ok(Predicting::between(Basis::Published, value, low, high)
                .formula("published main memory", "published latency of main memory")
                .constant("main memory, lowest", range[0], Unit::Nanoseconds, source)
                .constant("main memory, highest", range[1], Unit::Nanoseconds, source)
                .source(source)
                .derived_as(format!("{:.0} to {:.0} ns", range[0], range[1])));
        }
        Level::Second => match hierarchy::hierarchy(facts).ok().and_then(|row| Some((row.second?, row.source))) {
            Some((cycles, source)) => ([cycles; 2], "L2", source),
            None => return by_accesses(facts),
        },
        Level::Third => {
            let row = hierarchy::hierarchy(facts)?;
            (row.third.ok_or_else(|| none("L3"))?, "L3", row.source)
        }
    };
    let frequency = published::frequency(facts)?;
    let cycles = f64::midpoint(least, most);
    let [low, value, high] = [least * (1.0 - TOLERANCE), cycles, (most + SECOND_TLB[1]) * (1.0 + TOLERANCE)]
        .map(|cycles| cycles * 1e9 / frequency.value);
    Ok(Predicting::between(Basis::Published, value, low, high)
        .formula(format!("published latency of {name}"), format!("published latency of {name} / core frequency"))
        .input(published::cycles(name, cycles, source))
        .input(frequency.clone())
        .source(source)
        .derived_as(format!("{cycles} cycles / {:.3} GHz = {value:.2} ns", frequency.value / 1e9)))
}

/// A hit in L2 of which nothing is published: L1 is asked first, then the tags of L2, and its data once they have told where.
fn by_accesses(facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
    let load = facts.measured(&LATENCY_LOAD, &Case::new())?;
    let value = ACCESSES * load.value;
    let [low, high] = OF_ACCESSES.map(|factor| factor * value);
    Ok(Predicting::between(Basis::Derived, value, low, high)
        .formula(
            "three accesses",
            "accesses to L1, to the tags of L2 and to its data, one after the other, each as long as a load from L1",
        )
        .input(load.clone())
        .constant("accesses", ACCESSES, Unit::Count, "L1, tags of L2, data of L2")
        .derived_as(format!("{ACCESSES} x {:.2} ns = {value:.2} ns", load.value)))
}

/// Accesses of a hit in L2.
const ACCESSES: f64 = 3.0;
/// Predicted range about these: the published cores take 2.8 to 4.3 times as long as a load from L1.
const OF_ACCESSES: [f64; 2] = [0.8, 1.5];

/// A prediction as a sum of shares of levels, and of translations.
struct Sum<'a, 'b> {
    facts: &'a Facts<'b>,
    known: &'a Hierarchy,
    /// Nanoseconds of a hit in the second TLB: lowest and highest published.
    second_tlb: [f64; 2],
    value: f64,
    /// As if no line had been pushed out that fits.
    low: f64,
    /// As if the farthest of these levels served all.
    high: f64,
    terms: Vec<String>,
    names: Vec<&'static str>,
    /// Whether translations are part of it.
    translates: bool,
    inputs: Vec<Input>,
}

impl<'a, 'b> Sum<'a, 'b> {
    fn new(facts: &'a Facts<'b>, known: &'a Hierarchy, is_base: bool) -> Result<Self, NoPrediction> {
        let frequency = published::frequency(facts)?;
        let second_tlb = SECOND_TLB.map(|cycles| cycles * 1e9 / frequency.value);
        let inputs = if is_base { vec![frequency] } else { Vec::new() };
        let (terms, names) = (Vec::new(), Vec::new());
        let (low, high, translates) = (f64::INFINITY, 0.0, false);
        Ok(Self { facts, known, second_tlb, value: 0.0, low, high, terms, names, translates, inputs })
    }

    /// A level's latency without translation, as measured at its point.
    fn latency(&mut self, level: Level) -> Result<f64, NoPrediction> {
        let name = level.name();
        let point = self.known.point(level, self.facts.machine());
        let point = point.ok_or_else(|| NoPrediction::because(format!("no working set is served by {name} alone")))?;
        let measured = match level {
            Level::Memory => latency::without_translation(self.facts)?,
            _ => self.facts.measured(&LATENCY, &point)?,
        };
        let bytes = BYTES.of(&point).unwrap_or(0);
        let translating = match PageSize::of(&point) {
            Some(PageSize::Base) => self.known.untranslated(bytes, 0) * self.hit_in_second_tlb(),
            _ => 0.0,
        };
        let latency = measured.value - translating;
        if !self.inputs.iter().any(|known| known.name == measured.name) {
            self.inputs.push(measured);
        }
        Ok(latency)
    }

    fn hit_in_second_tlb(&self) -> f64 {
        f64::midpoint(self.second_tlb[0], self.second_tlb[1])
    }

    fn add(&mut self, level: Level, share: f64) -> Result<(), NoPrediction> {
        if share < NONE {
            return Ok(());
        }
        let latency = self.latency(level)?;
        let name = level.name();
        self.value += share * latency;
        (self.low, self.high) = (self.low.min(latency), self.high.max(latency));
        self.terms.push(format!("{share:.2} x {latency:.2} ns of {name}"));
        self.names.push(name);
        Ok(())
    }

    /// What base pages add: hits in the second TLB, and beyond it entries read from where the page tables lie.
    fn translate(&mut self, bytes: u64) -> Result<(), NoPrediction> {
        let (first, second) = (self.known.untranslated(bytes, 0), self.known.untranslated(bytes, 1));
        if first < NONE {
            return Ok(());
        }
        let hits = first * self.hit_in_second_tlb();
        let mut walks = 0.0;
        self.terms.push(format!("{hits:.2} ns of hits in the second TLB"));
        if second >= NONE {
            let tables = self.known.tables() as f64;
            walks = second * tables * self.latency(self.known.holds_tables(bytes))?;
            self.terms.push(format!("{walks:.1} ns of entries of page tables"));
        }
        self.translates = true;
        self.value += hits + walks;
        self.low += first * self.second_tlb[0];
        // At most one more load from the farthest level for each table.
        let farthest = if second >= NONE { self.known.tables() as f64 * self.high } else { 0.0 };
        self.high += first * self.second_tlb[1] + second * farthest;
        Ok(())
    }

    fn prediction(self) -> Prediction {
        let levels = self.names.join(" and ");
        let name = if self.translates { format!("{levels}, with translations") } else { levels };
        let mut predicting = Predicting::between(
            Basis::Derived,
            self.value,
            self.low.min(self.value) * (1.0 - TOLERANCE),
            self.high.max(self.value) * (1.0 + TOLERANCE),
        )
        .formula(name, format!("loads from {}, by shares, and their translations", self.names.join(" and ")))
        .source(SECOND_TLB_SOURCE);
        if let Some((bytes, there)) = self.known.own_third.as_ref().filter(|_| self.names.len() > 1) {
            predicting = predicting.input(there.clone()).constant(
                "share of L3",
                *bytes as f64,
                Unit::Bytes,
                "of that set, what memory did not serve",
            );
        } else if self.known.is_virtual && self.names.len() > 1 {
            predicting = predicting
                .constant("share of L3, for each CPU", SHARE_OF_CPU as f64, Unit::Bytes, SHARE_SOURCE)
                .source(SHARE_SOURCE);
        }
        let derivation = format!("{} = {:.2} ns", self.terms.join(" + "), self.value);
        predicting.inputs(self.inputs).derived_as(derivation)
    }
}

#[cfg(test)]
mod tests {
    use kelvin_model::{Fact, MeasuredValue, Tlb};

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
        let tlb = |(level, entries)| Tlb { level, kind: CacheKind::Data, page_bytes: PAGE, entries, ways: 4 };
        machine.cpu.tlbs = Fact::known([(1, 64), (2, 2048)].map(tlb).into(), "a test");
        machine
    }

    /// At 4 GHz: 1 ns in L1, 4 in L2, 14 in L3 (of which 1.5 are hits in the second TLB), 150 in memory.
    fn at(machine: &Machine, bytes: u64, pages: PageSize) -> Result<Prediction, NoPrediction> {
        let measured = |id: &str, case: &Case| {
            let value = match (id, PageSize::of(case), BYTES.of(case)) {
                (id, ..) if *id == *LATENCY_LOAD.id => 1.0,
                (id, ..) if *id != *LATENCY.id => 4e9,
                (_, Some(PageSize::Huge), _) => 150.0,
                (_, _, Some(bytes)) if bytes == 64 * KIB => 4.0,
                (_, _, Some(bytes)) if bytes == 2 * MIB => 14.0 + 2.0 * 7.0 / 8.0,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        predict(&Facts::new(machine, &measured), &LATENCY, &Case::new().at(pages).with(BYTES, bytes))
    }

    fn value(machine: &Machine, bytes: u64, pages: PageSize) -> f64 {
        at(machine, bytes, pages).unwrap().value
    }

    #[test]
    fn lines_in_sets_with_room_for_fewer() {
        assert_eq!(at_least(0, 3.0), 1.0);
        assert!((at_least(1, 2.0) - (1.0 - (-2.0f64).exp())).abs() < 1e-12);
        // By the tables of the Poisson distribution: 1 - P(X <= 7) at a mean of 8.
        assert!((at_least(8, 8.0) - 0.547_039).abs() < 1e-6);
        assert!(at_least(8, 2.0) < 0.002 && at_least(8, 24.0) > 0.999);
    }

    #[test]
    fn one_point_of_each_level_is_measured_and_the_others_follow() {
        let machine = machine(None);
        let base = |bytes| value(&machine, bytes, PageSize::Base);
        assert_eq!((base(16 * KIB), base(32 * KIB)), (1.0, 1.0));
        assert!((base(128 * KIB) - 4.0).abs() < 0.001, "all of L2, in reach of the first TLB");
        // Half of the pages are beyond the first TLB: 8 cycles at 4 GHz; and 5 % lie in sets that are too full.
        let half = base(512 * KIB);
        assert!((half - (0.949 * 4.0 + 0.051 * 14.0 + 1.0)).abs() < 0.01, "{half}");
        // No more than L2 holds, in huge pages, which fill its sets evenly.
        assert_eq!(value(&machine, 512 * KIB, PageSize::Huge), 4.0);
        // In L3: what it takes at its point less the translation, and 15/16 of that.
        let third = base(4 * MIB);
        assert!((third - (14.0 + 2.0 * 15.0 / 16.0)).abs() < 0.01, "{third}");
        // L3 holds a fifth of 64 MiB; an entry of the page table for all but 8 MiB: 2 x 128 KiB stay in L2.
        let memory = base(64 * MIB);
        assert!((memory - (0.2032 * 14.0 + 0.7968 * 150.0 + 2.0 + 4.0 * 7.0 / 8.0)).abs() < 0.02, "{memory}");
        let words = at(&machine, 64 * MIB, PageSize::Base).unwrap().derivation;
        assert_eq!(
            words,
            "0.20 x 14.00 ns of L3 + 0.80 x 150.00 ns of memory + 1.99 ns of hits in the second TLB + 3.5 ns of entries of \
             page tables = 127.86 ns"
        );
    }

    #[test]
    fn a_virtual_machine_has_a_share_of_the_last_level_and_two_page_tables() {
        let machine = machine(Some("KVM"));
        // 4 MiB for its two CPUs.
        let fifth = value(&machine, 8 * MIB, PageSize::Huge);
        assert!((fifth - (0.2032 * 14.0 + 0.7968 * 150.0)).abs() < 0.01, "{fifth}");
        let [of_one, of_two] = [None, Some("KVM")]
            .map(|hypervisor| at(&self::machine(hypervisor), 256 * MIB, PageSize::Base).unwrap().derivation);
        // 512 KiB of each table pass through with as many lines of data: no L2 of 1 MiB holds three of them.
        assert!(
            of_one.contains(" + 3.9 ns of entries") && of_two.contains(" + 27.1 ns of entries"),
            "{of_one}\n{of_two}"
        );
    }

    #[test]
    fn a_cache_holds_less_of_a_set_passed_in_order_than_its_size_is_of_it() {
        assert_eq!([0.5, 1.0].map(share_held), [1.0, 1.0]);
        let share = share_held(2.0);
        assert!((share - (-2.0 * (1.0 - share)).exp()).abs() < 1e-12 && (share - 0.2032).abs() < 1e-4, "{share}");
        for times in [1.2, 1.5, 3.0] {
            assert!((times_held(share_held(times)) - times).abs() < 1e-6);
        }
    }

    #[test]
    fn what_memory_did_not_serve_of_a_set_tells_what_a_virtual_machine_has_of_the_last_level() {
        let machine = machine(Some("KVM"));
        // As above, and of these sets the time of the loads beside what translation takes.
        let with = |sets: &[(u64, f64)], bytes: u64| {
            let measured = |id: &str, case: &Case| {
                let known = Hierarchy::of(&machine).unwrap();
                let value = match (PageSize::of(case), BYTES.of(case)) {
                    _ if *id == *LATENCY_LOAD.id => 1.0,
                    _ if *id != *LATENCY.id => 4e9,
                    (Some(PageSize::Huge), _) => 150.0,
                    (_, Some(bytes)) if bytes == 64 * KIB => 4.0,
                    (_, Some(bytes)) if bytes == 2 * MIB => 14.0 + 2.0 * 7.0 / 8.0,
                    (_, Some(bytes)) => {
                        let (_, loads) = sets.iter().find(|(of, _)| *of == bytes)?;
                        loads + 2.0 * known.untranslated(bytes, 0) + 2.0 * 4.0 * known.untranslated(bytes, 1)
                    }
                    _ => return None,
                };
                Some(MeasuredValue { value, half_width: 0.0 })
            };
            let facts = Facts::new(&machine, &measured);
            Hierarchy::of(&machine).unwrap().own_third(&facts, &latency::in_base_pages(bytes)).map(|(bytes, _)| bytes)
        };
        let part = |times: f64| 150.0 - 136.0 * share_held(times);
        let near = |found: Option<u64>, bytes: u64| assert!(found.unwrap().abs_diff(bytes) < bytes / 100, "{found:?}");
        near(with(&[(16 * MIB, part(1.6))], 4 * MIB), 10 * MIB);
        // All of 16 MiB, and a part of 32.
        near(with(&[(16 * MIB, 14.0), (32 * MIB, part(1.6))], 4 * MIB), 20 * MIB);
        assert_eq!(with(&[(16 * MIB, 14.0), (32 * MIB, part(1.6))], 32 * MIB), Some(16 * MIB));
        // Hardly anything of 16 MiB.
        near(with(&[(16 * MIB, part(4.0)), (8 * MIB, part(2.0))], 4 * MIB), 4 * MIB);
        assert_eq!(with(&[(16 * MIB, part(1.6))], 16 * MIB), None, "a set tells nothing of itself");
    }

    #[test]
    fn points_are_predicted_by_what_is_published() {
        let mut machine = machine(None);
        let points = [Level::Second, Level::Third, Level::Memory].map(|level| {
            let known = Hierarchy::of(&machine).unwrap();
            known.point(level, &machine).unwrap()
        });
        let of = |machine: &Machine, case: &Case| {
            predict(&Facts::new(machine, &|_, _| Some(MeasuredValue { value: 4e9, half_width: 0.0 })), &LATENCY, case)
        };
        assert_eq!(points.clone().map(|case| BYTES.of(&case).unwrap()), [64 * KIB, 2 * MIB, 256 * MIB]);
        // Nothing is published of an unknown core: L2 as three accesses.
        assert_eq!(points.clone().map(|case| of(&machine, &case).ok().map(|it| it.value)), [Some(12e9), None, None]);
        machine.cpu.microarchitecture = Fact::known("Zen 2".into(), "a test");
        let values = points.map(|case| of(&machine, &case).unwrap().value);
        assert_eq!(values[..2], [3.0, 10.0]);
        assert!((values[2] - (113.0f64 * 134.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn pages_cost_translations_beside_what_their_lines_take() {
        let machine = machine(None);
        let measured = |id: &str, case: &Case| {
            let value = match BYTES.of(case) {
                _ if *id == *LATENCY_LOAD.id => 1.0,
                Some(_) => 4.0,
                None => 4e9,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = Facts::new(&machine, &measured);
        assert_eq!(in_adjacent_lines(&facts, 16 * KIB).unwrap().value, 1.0);
        assert_eq!(in_adjacent_lines(&facts, 64 * KIB).unwrap().value, 4.0);
        let lines = |value| Input { name: "lines".into(), value, unit: Unit::Nanoseconds, source: "a test".into() };
        let of = |value, count| in_pages(&facts, lines(value), count).unwrap().value;
        assert_eq!(of(1.0, 64), 1.0, "in the first TLB");
        assert_eq!(of(1.0, 256), 1.0 + 2.0 * 0.75);
        // Half of 4096 pages are in neither: an entry from L2.
        assert_eq!(of(4.0, 4096), 4.0 + 2.0 * 63.0 / 64.0 + 4.0 / 2.0);
    }
}
