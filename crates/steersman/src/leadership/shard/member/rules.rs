//! The rules that the proof in [`crate::leadership::shard`] rests on, one by one: rare cases that random schedules seldom reach.

use std::time::Duration;

use tokio::time::Instant;

use super::*;

const TIMES: Times = Times {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    period: Duration::from_secs(2),
    handover: Duration::from_secs(5),
};

/// A member, a clock, and the current records of the group.
struct Rig {
    member: Member,
    start: Instant,
    now: Instant,
    records: Vec<Record>,
    n_writes: u32,
    in_use: Slots,
    /// The request of the last step, until a test takes it.
    asked: Option<Effect>,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn record(id: &str, version: &str, claims: Slots) -> Record {
    Record { id: id.to_owned(), version: version.to_owned(), claims, is_released: false, lease: TIMES.lease }
}

impl Rig {
    fn new(records: Vec<Record>) -> Self {
        let now = Instant::now();
        let member = Member::new("a".to_owned(), TIMES, 1, now);
        Self { member, start: now, now, records, n_writes: 0, in_use: Slots::NONE, asked: None }
    }

    fn step(&mut self, input: Input) {
        let effect = self.member.step(self.now, self.in_use, input);
        assert!(effect.is_none() || self.asked.is_none(), "two requests at once");
        self.asked = self.asked.take().or(effect);
    }

    /// Carries out a request.
    fn answer(&mut self, effect: Effect) {
        let answer = match effect {
            Effect::Forget { .. } => Input::Forgot,
            Effect::List => Input::Listed(self.records.clone()),
            Effect::Write { claims, .. } => self.write(claims),
        };
        self.step(answer);
    }

    /// Carries out the member's requests at once, until it makes no more at this time.
    fn settle(&mut self) {
        self.step(Input::Wake);
        loop {
            match self.asked.take() {
                Some(effect) => self.answer(effect),
                None if self.member.next_wake(self.now) <= self.now => self.step(Input::Wake),
                None => return,
            }
        }
    }

    /// Carries out a write.
    fn write(&mut self, claims: Slots) -> Input {
        self.n_writes += 1;
        let version = format!("a{}", self.n_writes);
        self.records.retain(|record| record.id != "a");
        self.records.push(record("a", &version, claims));
        Input::Written { version }
    }

    /// Lets time pass, in which every request is answered at once.
    fn live_until(&mut self, at: Duration) {
        while self.now < self.start + at {
            self.now = self.member.next_wake(self.now).min(self.start + at).max(self.now);
            self.settle();
        }
    }

    /// Waits for the next request.
    fn next_request(&mut self) -> Effect {
        for _ in 0..1_000 {
            if let Some(effect) = self.asked.take() {
                return effect;
            }
            self.now = self.member.next_wake(self.now);
            self.step(Input::Wake);
        }
        panic!("it asks for nothing any more");
    }

    /// Waits for the next write, answering everything else.
    fn next_write(&mut self) -> Slots {
        loop {
            match self.next_request() {
                Effect::Write { claims, .. } => return claims,
                other => self.answer(other),
            }
        }
    }

    /// Waits for the next list, refusing everything else.
    fn next_list(&mut self) {
        loop {
            match self.next_request() {
                Effect::List => return,
                Effect::Forget { .. } => self.step(Input::Forgot),
                Effect::Write { .. } => self.step(Input::Refused),
            }
        }
    }

    fn held(&self) -> Slots {
        self.member.permission().held
    }

    fn kept(&self) -> Slots {
        self.member.permission().kept
    }
}

/// The share of `a` beside `b`.
fn half() -> Slots {
    share("a", &["a".to_owned(), "b".to_owned()])
}

fn alone() -> Rig {
    let mut rig = Rig::new(Vec::new());
    rig.settle();
    assert_eq!(rig.held(), Slots::ALL);
    rig
}

#[test]
fn the_deadline_counts_from_when_the_write_was_sent() {
    let mut rig = Rig::new(Vec::new());
    let claims = rig.next_write();
    let sent = rig.now;
    rig.now += ms(4_000);
    let answer = rig.write(claims);
    rig.step(answer);
    assert_eq!(rig.member.permission().until, Some(sent + TIMES.renew_deadline));
}

#[test]
fn an_answer_that_comes_after_the_deadline_allows_nothing() {
    let mut rig = Rig::new(Vec::new());
    let claims = rig.next_write();
    rig.now += TIMES.renew_deadline;
    let answer = rig.write(claims);
    rig.step(answer);
    assert_eq!(rig.member.permission().until, None);
}

#[test]
fn a_lapse_ends_all_work_and_begins_a_new_term() {
    let mut rig = alone();
    rig.in_use = Slots::ALL;
    let before = rig.member.permission();
    rig.now = before.until.unwrap();
    rig.step(Input::Wake);
    let after = rig.member.permission();
    assert_eq!((after.held, after.kept), (Slots::NONE, Slots::NONE));
    assert!(after.term > before.term);
    // A renewal is not enough: another member may have taken over in between.
    let claims = rig.next_write();
    let answer = rig.write(claims);
    rig.step(answer);
    assert_eq!(rig.held(), Slots::NONE);
}

#[test]
fn a_record_is_dead_when_a_list_asked_for_a_lease_later_still_shows_it() {
    let other = Slots::ALL - half();
    let mut rig = Rig::new(vec![record("b", "b1", other)]);
    rig.settle();
    assert_eq!(rig.held(), half());
    // The record was first seen at the start. A list is requested just before its lease is over, and answered long
    // after.
    loop {
        let effect = rig.next_request();
        if effect == Effect::List && rig.now > rig.start + TIMES.lease - ms(2_100) {
            break;
        }
        rig.answer(effect);
    }
    assert!(rig.now < rig.start + TIMES.lease, "asked for at {:?}", rig.now - rig.start);
    rig.now = rig.start + TIMES.lease + ms(3_000);
    let answer = Input::Listed(rig.records.clone());
    rig.step(answer);
    assert_eq!(rig.member.members(), ["a", "b"]);
    rig.live_until(TIMES.lease + ms(10_000));
    assert_eq!(rig.member.members(), ["a"]);
    assert_eq!(rig.held(), Slots::ALL);
}

#[test]
fn what_a_record_claimed_that_vanished_is_left_alone_until_its_lease_is_over() {
    let other = Slots::ALL - half();
    let mut rig = Rig::new(vec![record("b", "b1", other)]);
    rig.settle();
    rig.records.retain(|record| record.id == "a");
    rig.live_until(TIMES.lease - ms(500));
    assert_eq!(rig.member.members(), ["a"]);
    assert_eq!(rig.held(), half());
    rig.live_until(TIMES.lease + ms(10_000));
    assert_eq!(rig.held(), Slots::ALL);
}

#[test]
fn a_released_record_is_taken_over_at_once() {
    let other = Slots::ALL - half();
    let mut rig = Rig::new(vec![record("b", "b1", other)]);
    rig.settle();
    let released = Record { is_released: true, ..record("b", "b2", Slots::NONE) };
    rig.records.retain(|record| record.id == "a");
    rig.records.push(released);
    rig.live_until(ms(5_000));
    assert_eq!(rig.held(), Slots::ALL);
}

#[test]
fn what_a_write_under_way_or_in_doubt_gives_up_is_given_up() {
    let mut rig = alone();
    rig.records.push(record("b", "b1", Slots::NONE));
    // Renews with all claims until it has listed `b` and no work is under way on the slots that go to it.
    let claims = loop {
        let claims = rig.next_write();
        if claims != Slots::ALL {
            break claims;
        }
        let answer = rig.write(claims);
        rig.step(answer);
    };
    assert_eq!(claims, half());
    assert_eq!(rig.kept(), half(), "the write is under way");
    rig.step(Input::Unanswered);
    assert_eq!(rig.kept(), half(), "it may have been done, or may still be");
    // The write may still be done, although the list does not have its record.
    rig.next_list();
    let list = Input::Listed(rig.records.clone());
    rig.step(list);
    assert_eq!(rig.kept() - half(), Slots::NONE);
    assert_eq!(rig.held() - half(), Slots::NONE);
}

#[test]
fn what_is_worked_on_is_claimed_until_it_ends_or_its_time_is_over() {
    let mut rig = alone();
    let busy = Slots::ALL - half();
    rig.in_use = busy;
    rig.records.push(record("b", "b1", Slots::NONE));
    let seen = rig.now;
    while rig.held() == Slots::ALL {
        let claims = rig.next_write();
        assert_eq!(claims, Slots::ALL);
        let answer = rig.write(claims);
        rig.step(answer);
        rig.settle();
    }
    assert_eq!(rig.held(), half());
    assert_eq!(rig.kept(), Slots::ALL, "what was begun may end");
    rig.live_until(seen - rig.start + TIMES.handover + ms(3_000));
    assert_eq!(rig.kept(), half(), "its time is over");
    let claimed = |rig: &Rig| rig.records.iter().find(|record| record.id == "a").map(|record| record.claims);
    assert_eq!(claimed(&rig), Some(Slots::ALL), "it is still at work");
    rig.in_use = Slots::NONE;
    rig.live_until(seen - rig.start + TIMES.handover + ms(6_000));
    assert_eq!(claimed(&rig), Some(half()));
}

#[test]
fn a_record_that_somebody_deleted_claims_nothing() {
    let mut rig = alone();
    let term = rig.member.permission().term;
    rig.records.clear();
    // Replacing a record that is gone is refused.
    rig.next_list();
    rig.step(Input::Listed(Vec::new()));
    assert_eq!((rig.held(), rig.kept()), (Slots::NONE, Slots::NONE));
    assert!(rig.member.permission().term > term);
}
