//! The next step for the certificates in a Secret, and its time. Pure: the caller has the clock.
//!
//! A certificate is renewed after two thirds of its time. Its authority lasts longer and is replaced in three steps, so
//! that no call fails: the next authority is made and written into every `caBundle`, beside the current one; when it
//! has been there long enough for every API server to have read it, it signs the certificate; the former one stays in
//! the bundle until it expires, for replicas that still serve a certificate signed by it.

use crate::webhook::certificates::issue::Validity;

/// The facts of a Secret that decide the next step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Facts {
    pub(crate) authority: Validity,
    pub(crate) next: Option<Next>,
    pub(crate) certificate: Validity,
    /// The certificate has all wanted names, and is signed by the authority.
    pub(crate) is_certificate_fit: bool,
}

/// An authority that is not used yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Next {
    pub(crate) validity: Validity,
    /// Since when every configuration is known to have it.
    pub(crate) published: Option<i64>,
}

/// The next step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Make an authority and a certificate, because none can be used.
    Begin,
    /// Make the next authority.
    Introduce,
    /// Make the next authority the current one, and sign a certificate with it.
    Promote,
    /// Make a new certificate.
    Renew,
    /// Nothing is due before this moment.
    Wait { until: i64 },
}

/// The next step for a Secret with these facts; `None` for an empty Secret. `overlap` is how many seconds an authority
/// must have been published before it signs.
pub(crate) fn due(facts: Option<&Facts>, now: i64, overlap: i64) -> Step {
    let Some(Facts { authority, next, certificate, is_certificate_fit }) = facts else { return Step::Begin };
    let mut until = i64::MAX;
    match next {
        None if authority.not_after <= now => return Step::Begin,
        None if authority.renewal() <= now => return Step::Introduce,
        None => until = until.min(authority.renewal()),
        Some(next) if next.validity.not_after <= now => return Step::Begin,
        // Calls fail already, so an early change does no harm.
        Some(_) if authority.not_after <= now => return Step::Promote,
        Some(Next { published: Some(published), .. }) => {
            let promotion = published.saturating_add(overlap);
            if promotion <= now {
                return Step::Promote;
            }
            until = until.min(promotion);
        }
        Some(Next { published: None, .. }) => {}
    }
    // A certificate that lasts as long as its authority cannot be extended.
    let can_last_longer = certificate.not_after < authority.not_after;
    if !is_certificate_fit || certificate.not_after <= now || can_last_longer && certificate.renewal() <= now {
        return Step::Renew;
    }
    if can_last_longer {
        until = until.min(certificate.renewal());
    }
    Step::Wait { until }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERLAP: i64 = 60;

    fn facts() -> Facts {
        Facts {
            authority: Validity { not_before: 0, not_after: 9_000 },
            next: None,
            certificate: Validity { not_before: 0, not_after: 900 },
            is_certificate_fit: true,
        }
    }

    #[track_caller]
    fn check(facts: &Facts, now: i64, expected: Step) {
        assert_eq!(due(Some(facts), now, OVERLAP), expected);
    }

    #[test]
    fn a_certificate_is_renewed_when_two_thirds_are_over_or_when_it_does_not_fit() {
        assert_eq!(due(None, 0, OVERLAP), Step::Begin);
        check(&facts(), 0, Step::Wait { until: 600 });
        check(&facts(), 599, Step::Wait { until: 600 });
        check(&facts(), 600, Step::Renew);
        check(&Facts { is_certificate_fit: false, ..facts() }, 0, Step::Renew);
    }

    #[test]
    fn a_certificate_that_lasts_as_long_as_its_authority_is_not_renewed_again_and_again() {
        let capped = Facts { certificate: Validity { not_before: 8_100, not_after: 9_000 }, ..facts() };
        let introduced = Some(Next { validity: Validity { not_before: 6_000, not_after: 15_000 }, published: None });
        check(&Facts { next: introduced, ..capped.clone() }, 8_999, Step::Wait { until: i64::MAX });
    }

    #[test]
    fn an_authority_signs_only_once_every_configuration_has_had_it_for_a_while() {
        let late = Facts { certificate: Validity { not_before: 5_900, not_after: 6_800 }, ..facts() };
        check(&late, 5_999, Step::Wait { until: 6_000 });
        check(&late, 6_000, Step::Introduce);
        let next = |published| Some(Next { validity: Validity { not_before: 6_000, not_after: 15_000 }, published });
        check(&Facts { next: next(None), ..late.clone() }, 6_100, Step::Wait { until: 6_500 });
        check(&Facts { next: next(Some(6_100)), ..late.clone() }, 6_159, Step::Wait { until: 6_160 });
        check(&Facts { next: next(Some(6_100)), ..late.clone() }, 6_160, Step::Promote);
        // If the certificate must be renewed meanwhile, the current authority signs it.
        check(&Facts { next: next(None), ..late.clone() }, 6_500, Step::Renew);
        check(&Facts { next: next(None), ..late }, 9_000, Step::Promote);
    }

    #[test]
    fn after_a_long_sleep_everything_begins_anew() {
        check(&facts(), 9_000, Step::Begin);
        let next = Some(Next { validity: Validity { not_before: 6_000, not_after: 15_000 }, published: None });
        check(&Facts { next, ..facts() }, 15_000, Step::Begin);
    }
}
