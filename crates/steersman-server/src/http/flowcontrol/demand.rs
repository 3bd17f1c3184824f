//! The number of seats that a priority level would have used, over time: its borrowing is computed from that.
//!
//! [`Demand`] integrates the number over a period; [`Smoothed`] follows the periods, quickly upwards and slowly
//! downwards, as apiserver's `flowcontrol` does.

use std::time::Duration;
use tokio::time::Instant;

/// The weight of the past in the smoothed demand, for a period of ten seconds.
const SMOOTHING: f64 = 0.977;

/// The demand since the period began.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    value: u32,
    high: u32,
    since: Instant,
    changed_at: Instant,
    /// The integral of the value, and of its square, in seconds.
    integral: f64,
    square: f64,
}

/// The demand of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Period {
    pub(super) high: u32,
    pub(super) average: f64,
    pub(super) deviation: f64,
}

/// The smoothed demand of the periods so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Smoothed {
    pub(super) last: Period,
    pub(super) value: f64,
}

impl Demand {
    pub(super) fn new(now: Instant) -> Demand {
        Demand { value: 0, high: 0, since: now, changed_at: now, integral: 0.0, square: 0.0 }
    }

    pub(super) fn set(&mut self, value: u32, now: Instant) {
        self.advance(now);
        self.value = value;
        self.high = self.high.max(value);
    }

    /// Ends the period and begins another one.
    pub(super) fn end_period(&mut self, now: Instant) -> Period {
        self.advance(now);
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        let period = if seconds > 0.0 {
            let average = self.integral / seconds;
            // Rounding may leave a little less than zero.
            let variance = (self.square / seconds - average * average).max(0.0);
            Period { high: self.high, average, deviation: variance.sqrt() }
        } else {
            Period { high: self.high, average: f64::from(self.value), deviation: 0.0 }
        };
        *self = Demand { value: self.value, high: self.value, ..Demand::new(now) };
        period
    }

    fn advance(&mut self, now: Instant) {
        let passed: Duration = now.saturating_duration_since(self.changed_at);
        if passed.is_zero() {
            return;
        }
        let (seconds, value) = (passed.as_secs_f64(), f64::from(self.value));
        self.integral += value * seconds;
        self.square += value * value * seconds;
        self.changed_at = now;
    }
}

impl Smoothed {
    pub(super) fn add(&mut self, period: Period) {
        let envelope = period.average + period.deviation;
        self.value = envelope.max(SMOOTHING * self.value + (1.0 - SMOOTHING) * envelope);
        self.last = period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_averaged_over_the_period() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut demand = Demand::new(start);
        demand.set(4, at(5));
        let period = demand.end_period(at(10));
        assert_eq!((period.high, period.average, period.deviation), (4, 2.0, 2.0));
        // The next period begins with the current value.
        assert_eq!(demand.end_period(at(20)), Period { high: 4, average: 4.0, deviation: 0.0 });
    }

    #[test]
    fn demand_rises_at_once_and_falls_slowly() {
        let mut smoothed = Smoothed::default();
        smoothed.add(Period { high: 10, average: 8.0, deviation: 2.0 });
        assert!((smoothed.value - 10.0).abs() < 1e-9);
        smoothed.add(Period::default());
        assert!((9.0..10.0).contains(&smoothed.value), "{}", smoothed.value);
    }
}
