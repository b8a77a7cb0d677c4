//! Robust least squares: Levenberg and Marquardt's method with soft-L1 weights and a pull towards the start.

/// A problem in unbounded coordinates.
pub trait Problem {
    /// One residual for each row.
    fn residuals(&self, at: &[f64]) -> Vec<f64>;
    /// Rows that a coordinate can change.
    fn touched(&self, coordinate: usize) -> &[usize];
    /// Residuals of some rows.
    fn some(&self, at: &[f64], rows: &[usize]) -> Vec<f64>;
    /// Weight of each row.
    fn weights(&self) -> &[f64];
}

/// How much a residual of this size is believed half.
const SCALE: f64 = 0.1;

/// After how many steps that hardly help the search ends.
const STALLED: usize = 4;

/// Strength of the pull towards the start, in rows.
const PULL: f64 = 0.005;

/// Returns the coordinates with the least robust sum; the search begins at `from`, the pull is towards `start`.
pub fn solve(problem: &dyn Problem, start: &[f64], from: &[f64], steps: usize) -> Vec<f64> {
    let mut at = from.to_vec();
    let mut residuals = problem.residuals(&at);
    let mut cost = total(problem, &residuals, &at, start);
    let mut damping = 1e-2;
    let mut stalled = 0;
    for _ in 0..steps {
        let jacobian = jacobian(problem, &at, &residuals);
        let size = at.len();
        let mut normal = vec![vec![0.0; size]; size];
        let mut gradient = vec![0.0; size];
        let mut row_entries: Vec<Vec<(usize, f64)>> = vec![Vec::new(); residuals.len()];
        for (coordinate, column) in jacobian.iter().enumerate() {
            for (row, slope) in column {
                row_entries[*row].push((coordinate, *slope));
            }
        }
        for (row, entries) in row_entries.iter().enumerate() {
            let weight = problem.weights()[row] / (1.0 + (residuals[row] / SCALE).powi(2)).sqrt();
            for (left, one) in entries {
                gradient[*left] += weight * one * residuals[row];
                for (right, other) in entries {
                    normal[*left][*right] += weight * one * other;
                }
            }
        }
        for coordinate in 0..size {
            normal[coordinate][coordinate] += PULL;
            gradient[coordinate] += PULL * (at[coordinate] - start[coordinate]);
        }
        let mut better = false;
        let before = cost;
        for _ in 0..8 {
            let mut damped = normal.clone();
            for (coordinate, line) in damped.iter_mut().enumerate() {
                line[coordinate] *= 1.0 + damping;
            }
            let Some(step) = linear(damped, gradient.clone()) else { break };
            let next: Vec<f64> =
                at.iter().zip(&step).map(|(value, step)| (value - step.clamp(-1.5, 1.5)).clamp(-7.0, 7.0)).collect();
            let tried = problem.residuals(&next);
            let tried_cost = total(problem, &tried, &next, start);
            if tried_cost < cost {
                better = true;
                (at, residuals, cost) = (next, tried, tried_cost);
                damping = (damping * 0.3).max(1e-6);
                break;
            }
            damping *= 4.0;
        }
        stalled = if before - cost > 3e-5 * before { 0 } else { stalled + 1 };
        if !better || stalled >= STALLED {
            break;
        }
    }
    at
}

fn total(problem: &dyn Problem, residuals: &[f64], at: &[f64], start: &[f64]) -> f64 {
    let robust: f64 = residuals
        .iter()
        .zip(problem.weights())
        .map(|(residual, weight)| weight * 2.0 * SCALE * SCALE * ((1.0 + (residual / SCALE).powi(2)).sqrt() - 1.0))
        .sum();
    robust + PULL * at.iter().zip(start).map(|(one, other)| (one - other).powi(2)).sum::<f64>()
}

/// Slopes of the rows that each coordinate touches.
fn jacobian(problem: &dyn Problem, at: &[f64], residuals: &[f64]) -> Vec<Vec<(usize, f64)>> {
    let slope = |coordinate: usize| {
        let rows = problem.touched(coordinate);
        let mut moved = at.to_vec();
        moved[coordinate] += 1e-4;
        let there = problem.some(&moved, rows);
        rows.iter().zip(there).map(|(row, there)| (*row, (there - residuals[*row]) / 1e-4)).collect()
    };
    (0..at.len()).map(slope).collect()
}

/// Solves a symmetric system by elimination with pivots.
pub fn linear(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let size = right.len();
    for column in 0..size {
        let pivot =
            (column..size).max_by(|one, other| matrix[*one][column].abs().total_cmp(&matrix[*other][column].abs()))?;
        if matrix[pivot][column].abs() < 1e-14 {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let (above, below) = matrix.split_at_mut(column + 1);
        let lead = &above[column];
        for (offset, line) in below.iter_mut().enumerate() {
            let factor = line[column] / lead[column];
            if factor == 0.0 {
                continue;
            }
            for (value, of_lead) in line[column..].iter_mut().zip(&lead[column..]) {
                *value -= factor * of_lead;
            }
            right[column + 1 + offset] -= factor * right[column];
        }
    }
    let mut solution = vec![0.0; size];
    for column in (0..size).rev() {
        let known: f64 = (column + 1..size).map(|other| matrix[column][other] * solution[other]).sum();
        solution[column] = (right[column] - known) / matrix[column][column];
    }
    Some(solution)
}
