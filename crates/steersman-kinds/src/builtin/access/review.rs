//! The reviews: kinds whose objects are answered and never stored.

use crate::builtin::kind::{Kind, Version};
use crate::catalog::{Handling, Verb};

/// The common properties of reviews.
const REVIEW: Kind = Kind { verbs: &[Verb::Create], handling: Handling::Virtual, ..Kind::CLUSTER };

pub const SELF_SUBJECT: Kind = Kind {
    group: "authentication.k8s.io",
    kind: "SelfSubjectReview",
    plural: "selfsubjectreviews",
    singular: "selfsubjectreview",
    versions: &[Version { definition: "io.k8s.api.authentication.v1.SelfSubjectReview", ..Version::V1 }],
    ..REVIEW
};

pub const TOKEN: Kind = Kind {
    group: "authentication.k8s.io",
    kind: "TokenReview",
    plural: "tokenreviews",
    singular: "tokenreview",
    versions: &[Version { definition: "io.k8s.api.authentication.v1.TokenReview", ..Version::V1 }],
    ..REVIEW
};

pub const LOCAL_SUBJECT_ACCESS: Kind = Kind {
    group: "authorization.k8s.io",
    kind: "LocalSubjectAccessReview",
    plural: "localsubjectaccessreviews",
    singular: "localsubjectaccessreview",
    versions: &[Version { definition: "io.k8s.api.authorization.v1.LocalSubjectAccessReview", ..Version::V1 }],
    scope: Kind::NAMESPACED.scope,
    ..REVIEW
};

pub const SELF_SUBJECT_ACCESS: Kind = Kind {
    group: "authorization.k8s.io",
    kind: "SelfSubjectAccessReview",
    plural: "selfsubjectaccessreviews",
    singular: "selfsubjectaccessreview",
    versions: &[Version { definition: "io.k8s.api.authorization.v1.SelfSubjectAccessReview", ..Version::V1 }],
    ..REVIEW
};

pub const SELF_SUBJECT_RULES: Kind = Kind {
    group: "authorization.k8s.io",
    kind: "SelfSubjectRulesReview",
    plural: "selfsubjectrulesreviews",
    singular: "selfsubjectrulesreview",
    versions: &[Version { definition: "io.k8s.api.authorization.v1.SelfSubjectRulesReview", ..Version::V1 }],
    ..REVIEW
};

pub const SUBJECT_ACCESS: Kind = Kind {
    group: "authorization.k8s.io",
    kind: "SubjectAccessReview",
    plural: "subjectaccessreviews",
    singular: "subjectaccessreview",
    versions: &[Version { definition: "io.k8s.api.authorization.v1.SubjectAccessReview", ..Version::V1 }],
    ..REVIEW
};
