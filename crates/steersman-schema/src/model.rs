//! Schemas: those of built-in kinds, those of CustomResourceDefinitions, and their OpenAPI documents.

pub mod definitions;
pub mod openapi;
pub mod schema;
pub mod structural;
