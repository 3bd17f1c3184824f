//! Divides the server's seats among priority levels: nominal limits by shares, and seats lent and borrowed.
//!
//! Pure arithmetic after KEP-1040. Every level has a nominal number of seats, its share of all. It lends a part of the
//! seats that it does not use, and borrows seats that others lend, in proportion to demand.

/// The concurrency shares of a level's specification.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Shares {
    pub(super) nominal: u32,
    /// The part of the nominal seats that may be lent, 0 to 100.
    pub(super) lendable_percent: u32,
    /// The limit of borrowed seats as a part of the nominal ones; `None` for no limit.
    pub(super) borrowing_percent: Option<u32>,
}

/// The limits of a level in seats.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Bounds {
    pub(super) nominal: u32,
    /// The seats left if everything lendable is lent.
    pub(super) min: u32,
    pub(super) max: u32,
}

/// The demand of a level, from which seats are divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Need {
    pub(super) bounds: Bounds,
    pub(super) is_exempt: bool,
    /// The peak of seats wanted in the last period.
    pub(super) high: u32,
    /// The smoothed demand.
    pub(super) demand: f64,
}

/// The limits of all levels by their shares. `total` is the server's number of seats.
pub(super) fn bounds(total: u32, shares: &[Shares]) -> Vec<Bounds> {
    let sum: u64 = shares.iter().map(|one| u64::from(one.nominal)).sum();
    let part = |of: u32, percent: u32| {
        let part = (f64::from(of) * f64::from(percent) / 100.0).round();
        // The cast saturates.
        part as u32
    };
    let one = |shares: &Shares| {
        let seats = (u64::from(total) * u64::from(shares.nominal)).div_ceil(sum.max(1));
        let nominal = u32::try_from(seats).unwrap_or(u32::MAX);
        let max = shares.borrowing_percent.map_or(total.max(nominal), |percent| {
            nominal.saturating_add(part(nominal, percent)).min(total.max(nominal))
        });
        Bounds { nominal, min: nominal.saturating_sub(part(nominal, shares.lendable_percent)), max }
    };
    shares.iter().map(one).collect()
}

/// The current limits of all levels by their demand. A level gets at least its minimum, and the nominal seats that it
/// used lately; the rest is divided in proportion to demand.
pub(super) fn divide(needs: &[Need]) -> Vec<u32> {
    let total: f64 = needs.iter().map(|need| f64::from(need.bounds.nominal)).sum();
    let lower = |need: &Need| {
        let used = if need.is_exempt { need.high } else { need.high.min(need.bounds.nominal) };
        f64::from(used.max(need.bounds.min))
    };
    let exempt: f64 = needs.iter().filter(|need| need.is_exempt).map(lower).sum();
    let others = || needs.iter().filter(|need| !need.is_exempt);
    let rest = total - exempt;
    let min_sum: f64 = others().map(|need| f64::from(need.bounds.min)).sum();
    let lower_sum: f64 = others().map(lower).sum();
    let seats: Box<dyn Fn(&Need) -> f64> = if rest <= min_sum {
        Box::new(|need| f64::from(need.bounds.min))
    } else if rest <= lower_sum {
        // There are not enough seats for all recent use: each level gets the same part of its own.
        let part = (rest - min_sum) / (lower_sum - min_sum);
        Box::new(move |need| f64::from(need.bounds.min) + part * (lower(need) - f64::from(need.bounds.min)))
    } else {
        let target = move |need: &Need| need.demand.max(lower(need)).max(f64::MIN_POSITIVE);
        let at = move |need: &Need, factor: f64| (factor * target(need)).clamp(lower(need), upper(need, lower(need)));
        let factor = factor(rest, |factor| others().map(|need| at(need, factor)).sum());
        Box::new(move |need| at(need, factor))
    };
    let rounded = |seats: f64| seats.round() as u32;
    needs.iter().map(|need| rounded(if need.is_exempt { lower(need) } else { seats(need) })).collect()
}

fn upper(need: &Need, lower: f64) -> f64 {
    f64::from(need.bounds.max).max(lower)
}

/// The factor at which `sum`, which grows with it, reaches `available`; or a factor so large that the sum no longer
/// grows.
fn factor(available: f64, sum: impl Fn(f64) -> f64) -> f64 {
    const DOUBLINGS_MAX: u32 = 1100;
    const HALVINGS: u32 = 64;
    let mut high = 1.0;
    for _ in 0..DOUBLINGS_MAX {
        if available <= sum(high) || !f64::is_finite(high * 2.0) {
            break;
        }
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2.0;
        if sum(middle) < available { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(nominal: u32, lendable_percent: u32) -> Shares {
        Shares { nominal, lendable_percent, borrowing_percent: None }
    }

    fn need(bounds: Bounds, high: u32, demand: f64) -> Need {
        Need { bounds, is_exempt: false, high, demand }
    }

    #[test]
    fn the_bootstrap_levels_share_600_seats() {
        // exempt, catch-all, global-default, leader-election, node-high, system, workload-high, workload-low
        let all = [(0, 0), (5, 0), (20, 50), (10, 0), (40, 25), (30, 33), (40, 50), (100, 90)];
        let bounds = bounds(600, &all.map(|(nominal, lendable)| shares(nominal, lendable)));
        let nominal: Vec<u32> = bounds.iter().map(|bounds| bounds.nominal).collect();
        assert_eq!(nominal, [0, 13, 49, 25, 98, 74, 98, 245]);
        let min: Vec<u32> = bounds.iter().map(|bounds| bounds.min).collect();
        assert_eq!(min, [0, 13, 24, 25, 73, 50, 49, 24]);
        assert!(bounds.iter().all(|bounds| bounds.max == 600));
    }

    #[test]
    fn a_level_borrows_what_others_do_not_use_and_gives_it_back() {
        let limits = bounds(100, &[shares(50, 90), shares(50, 90)]);
        let divide = |one: (u32, f64), other: (u32, f64)| {
            divide(&[need(limits[0], one.0, one.1), need(limits[1], other.0, other.1)])
        };
        assert_eq!(divide((90, 90.0), (0, 0.0)), [95, 5]);
        assert_eq!(divide((90, 90.0), (20, 20.0)).iter().sum::<u32>(), 100);
        assert!(divide((90, 90.0), (20, 20.0))[1] >= 20, "what is used is not lent");
        assert_eq!(divide((90, 90.0), (90, 90.0)), [50, 50]);
    }

    #[test]
    fn borrowing_has_its_limit_and_the_exempt_go_first() {
        let limits = bounds(100, &[Shares { borrowing_percent: Some(10), ..shares(50, 0) }, shares(50, 100)]);
        assert_eq!((limits[0].max, limits[1].min), (55, 0));
        assert_eq!(divide(&[need(limits[0], 99, 99.0), need(limits[1], 0, 0.0)])[0], 55);
        let exempt = Need { is_exempt: true, ..need(Bounds { nominal: 0, min: 0, max: 100 }, 40, 40.0) };
        let divided = divide(&[exempt, need(limits[0], 50, 50.0), need(limits[1], 50, 50.0)]);
        assert_eq!(divided, [40, 50, 10]);
    }

    /// Whatever the needs, limits stay within their bounds and do not exceed the available seats.
    #[test]
    fn the_division_holds_its_bounds() {
        use rand::{Rng as _, SeedableRng as _};
        for seed in 0..500 {
            let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
            let shares: Vec<Shares> = (0..rng.random_range(1..9))
                .map(|_| Shares {
                    nominal: rng.random_range(0..200),
                    lendable_percent: rng.random_range(0..=100),
                    borrowing_percent: rng.random_bool(0.5).then(|| rng.random_range(0..300)),
                })
                .collect();
            let bounds = bounds(600, &shares);
            let needs: Vec<Need> = bounds
                .iter()
                .map(|bounds| need(*bounds, rng.random_range(0..900), rng.random_range(0.0..900.0)))
                .collect();
            let divided = divide(&needs);
            for (seats, need) in divided.iter().zip(&needs) {
                assert!(need.bounds.min <= *seats, "seed {seed}: {seats} of {need:?}");
                assert!(*seats <= need.bounds.max.max(need.bounds.nominal), "seed {seed}: {seats} of {need:?}");
            }
            let nominal: u32 = bounds.iter().map(|bounds| bounds.nominal).sum();
            // Each level is rounded on its own.
            assert!(divided.iter().sum::<u32>() <= nominal + divided.len() as u32, "seed {seed}: {divided:?}");
        }
    }
}
