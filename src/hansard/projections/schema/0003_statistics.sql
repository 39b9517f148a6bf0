-- Statistics as macros of plain SQL: usable in any query. Formulas and their sources stand in the
-- comments. Sums are taken in a fixed order, so that equal input gives equal bytes.

CREATE MACRO gauss_x() AS '[
    0.9987710072524261, 0.9935301722663508, 0.9841245837228269, 0.9705915925462473,
    0.9529877031604309, 0.9313866907065543, 0.9058791367155696, 0.8765720202742479,
    0.8435882616243935, 0.8070662040294426, 0.7671590325157404, 0.7240341309238146,
    0.6778723796326639, 0.6288673967765136, 0.5772247260839727, 0.523160974722233,
    0.4669029047509584, 0.4086864819907167, 0.34875588629216075, 0.28736248735545555,
    0.22476379039468905, 0.1612223560688917, 0.0970046992094627, 0.03238017096286936]'::DOUBLE[];
COMMENT ON MACRO gauss_x IS 'The 24 positive nodes of the Gauss-Legendre rule with 48 nodes on [-1, 1].';

CREATE MACRO gauss_w() AS '[
    0.0031533460523058385, 0.0073275539012762625, 0.01147723457923454, 0.015579315722943849,
    0.01961616045735553, 0.02357076083932438, 0.027426509708356948, 0.03116722783279809,
    0.03477722256477044, 0.03824135106583071, 0.04154508294346475, 0.04467456085669428,
    0.04761665849249048, 0.05035903555385447, 0.05289018948519367, 0.055199503699984165,
    0.057277292100403214, 0.059114839698395635, 0.06070443916589388, 0.062039423159892665,
    0.06311419228625402, 0.06392423858464819, 0.06446616443595009, 0.06473769681268392]'::DOUBLE[];
COMMENT ON MACRO gauss_w IS 'The weights of those nodes.';


CREATE MACRO normal_cdf(x) AS list_transform([x::DOUBLE], lambda v:
    CASE WHEN abs(v) > 9 THEN if(v > 0, 1.0, 0.0)
    ELSE 0.5 + v / 2 * list_sum(list_transform(list_zip(gauss_x(), gauss_w()), lambda n:
        n[2] * (exp(-v * v * (1 + n[1]) * (1 + n[1]) / 8) + exp(-v * v * (1 - n[1]) * (1 - n[1]) / 8))))
        * 0.3989422804014327 END)[1];
COMMENT ON MACRO normal_cdf IS 'P(Z <= x) of the standard normal distribution, to 1e-15: its density integrated by Gauss-Legendre.';

CREATE MACRO normal_quantile(p) AS list_transform([p::DOUBLE], lambda v:
    CASE WHEN v IS NULL OR v < 0 OR v > 1 THEN NULL
    WHEN v = 0 THEN '-inf'::DOUBLE WHEN v = 1 THEN 'inf'::DOUBLE
    WHEN abs(v - 0.5) <= 0.425 THEN list_transform([0.180625 - (v - 0.5) * (v - 0.5)], lambda r: (v - 0.5) *
        (((((((2509.0809287301226727 * r + 33430.575583588128105) * r + 67265.770927008700853) * r
        + 45921.953931549871457) * r + 13731.693765509461125) * r + 1971.5909503065514427) * r
        + 133.14166789178437745) * r + 3.387132872796366608) /
        (((((((5226.495278852854561 * r + 28729.085735721942674) * r + 39307.89580009271061) * r
        + 21213.794301586595867) * r + 5394.1960214247511077) * r + 687.1870074920579083) * r
        + 42.313330701600911252) * r + 1.0))[1]
    ELSE sign(v - 0.5) * list_transform([sqrt(-ln(least(v, 1 - v)))], lambda s: CASE WHEN s <= 5 THEN
        list_transform([s - 1.6], lambda r:
        (((((((7.7454501427834140764e-4 * r + 0.0227238449892691845833) * r + 0.24178072517745061177) * r
        + 1.27045825245236838258) * r + 3.64784832476320460504) * r + 5.7694972214606914055) * r
        + 4.6303378461565452959) * r + 1.42343711074968357734) /
        (((((((1.05075007164441684324e-9 * r + 5.475938084995344946e-4) * r + 0.0151986665636164571966) * r
        + 0.14810397642748007459) * r + 0.68976733498510000455) * r + 1.6763848301838038494) * r
        + 2.05319162663775882187) * r + 1.0))[1]
        ELSE list_transform([s - 5], lambda r:
        (((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 0.0012426609473880784386) * r
        + 0.026532189526576123093) * r + 0.29656057182850489123) * r + 1.7848265399172913358) * r
        + 5.4637849111641143699) * r + 6.6579046435011037772) /
        (((((((2.04426310338993978564e-15 * r + 1.4215117583164458887e-7) * r + 1.8463183175100546818e-5) * r
        + 7.868691311456132591e-4) * r + 0.0148753612908506148525) * r + 0.13692988092273580531) * r
        + 0.59983220655588793769) * r + 1.0))[1] END)[1]
    END)[1];
COMMENT ON MACRO normal_quantile IS 'The x with normal_cdf(x) = p: Wichura (1988), algorithm AS 241, PPND16.';

CREATE MACRO t_constant(df) AS exp(lgamma((df + 1) / 2) - lgamma(df / 2)) / 1.7724538509055159;
COMMENT ON MACRO t_constant IS 'Gamma((df + 1) / 2) / (sqrt(pi) Gamma(df / 2)), of the t distribution in its angle.';

CREATE MACRO t_angle_half(angle, df) AS angle / 2 * list_sum(list_transform(
    list_zip(gauss_x(), gauss_w()), lambda n: n[2] *
    (pow(cos(angle * (1 + n[1]) / 2), df - 1) + pow(cos(angle * (1 - n[1]) / 2), df - 1))));
COMMENT ON MACRO t_angle_half IS 'The integral of cos(u)^(df - 1) over u from 0 to angle, by Gauss-Legendre.';

CREATE MACRO t_cdf(x, df) AS list_transform([{'x': x::DOUBLE, 'df': df::DOUBLE}], lambda v:
    CASE WHEN v.x IS NULL OR v.df IS NULL OR v.df <= 0 THEN NULL
    WHEN v.df > 1e6 THEN normal_cdf(v.x)
    WHEN isinf(v.x) THEN if(v.x > 0, 1.0, 0.0)
    ELSE least(1.0, greatest(0.0, 0.5 + sign(v.x) * t_constant(v.df) *
        t_angle_half(atan(if(v.df > 50, least(abs(v.x), 15.0), abs(v.x)) / sqrt(v.df)), v.df))) END)[1];
COMMENT ON MACRO t_cdf IS 'P(T <= x) of Student''s t with df degrees of freedom, to 1e-13: in its angle atan(x / sqrt(df)) the density is t_constant(df) cos(u)^(df - 1).';

CREATE MACRO t_p(x, df) AS list_transform([t_cdf(abs(x::DOUBLE), df)], lambda v:
    greatest(0.0, 2 * (1 - v)))[1];
COMMENT ON MACRO t_p IS 'Two-sided p-value of a t statistic x with df degrees of freedom.';

CREATE MACRO t_quantile(p, df) AS list_transform([{'p': p::DOUBLE, 'df': df::DOUBLE}], lambda v:
    CASE WHEN v.p IS NULL OR v.df IS NULL OR v.df <= 0 OR v.p < 0 OR v.p > 1 THEN NULL
    WHEN v.p = 0.5 THEN 0.0
    WHEN v.p = 0 THEN '-inf'::DOUBLE WHEN v.p = 1 THEN 'inf'::DOUBLE
    WHEN v.df > 1e6 THEN normal_quantile(v.p)
    WHEN v.df = 1 THEN tan(pi() * (v.p - 0.5))
    WHEN v.df = 2 THEN (2 * v.p - 1) * sqrt(1 / (2 * v.p * (1 - v.p)))
    ELSE sign(v.p - 0.5) * sqrt(v.df) * tan(list_reduce(range(12), lambda angle, i:
        angle - (t_angle_half(angle, v.df) - abs(v.p - 0.5) / t_constant(v.df))
            / pow(cos(angle), v.df - 1),
        atan(abs(normal_quantile(v.p)) / sqrt(v.df)))) END)[1];
COMMENT ON MACRO t_quantile IS 'The x with t_cdf(x, df) = p: Newton''s method in the angle, from the normal quantile, which is never above it.';

CREATE MACRO chi_square_p(x, df) AS list_transform([{'x': x::DOUBLE, 'df': df::BIGINT}], lambda v:
    CASE WHEN v.x IS NULL OR v.df IS NULL OR v.df < 1 THEN NULL WHEN v.x <= 0 THEN 1.0
    WHEN v.df % 2 = 0 THEN least(1.0, list_sum(list_transform(range(0, v.df // 2), lambda i:
        exp(-v.x / 2 + i * ln(v.x / 2) - lgamma(i + 1)))))
    ELSE least(1.0, 2 * normal_cdf(-sqrt(v.x)) + coalesce(list_sum(list_transform(
        range(1, (v.df - 1) // 2 + 1), lambda i:
        exp(-v.x / 2 + (i - 0.5) * ln(v.x / 2) - lgamma(i + 0.5)))), 0.0)) END)[1];
COMMENT ON MACRO chi_square_p IS 'P(X >= x) of the chi-square distribution with df (whole) degrees of freedom: its closed sums (Abramowitz and Stegun 26.4.4 and 26.4.5).';

CREATE MACRO binomial_p(k, n) AS list_transform([{'k': least(k, n - k)::BIGINT, 'n': n::BIGINT}], lambda v:
    CASE WHEN v.n IS NULL OR v.k IS NULL OR v.k < 0 THEN NULL WHEN v.n = 0 THEN 1.0
    ELSE least(1.0, 2 * list_sum(list_transform(range(0, v.k + 1), lambda i:
        exp(lgamma(v.n + 1) - lgamma(i + 1) - lgamma(v.n - i + 1) - v.n * ln(2.0))))) END)[1];
COMMENT ON MACRO binomial_p IS 'Two-sided exact p-value of k heads in n throws of a fair coin: twice the smaller tail, at most 1.';

CREATE MACRO mcnemar_p(b, c) AS binomial_p(least(b, c), b + c);
COMMENT ON MACRO mcnemar_p IS 'Exact McNemar test: p-value of b and c discordant pairs (McNemar 1947; exact by the binomial).';

CREATE MACRO wilson_low(successes, n, alpha := 0.05) AS list_transform([{'p': successes / n::DOUBLE,
    'n': n::DOUBLE, 'z': normal_quantile(1 - alpha / 2)}], lambda v: if(v.n > 0, greatest(0.0,
    (v.p + v.z * v.z / (2 * v.n) - v.z * sqrt(v.p * (1 - v.p) / v.n + v.z * v.z / (4 * v.n * v.n)))
    / (1 + v.z * v.z / v.n)), NULL))[1];
COMMENT ON MACRO wilson_low IS 'Lower end of the Wilson score interval of a proportion (Wilson 1927) at confidence 1 - alpha.';

CREATE MACRO wilson_high(successes, n, alpha := 0.05) AS list_transform([{'p': successes / n::DOUBLE,
    'n': n::DOUBLE, 'z': normal_quantile(1 - alpha / 2)}], lambda v: if(v.n > 0, least(1.0,
    (v.p + v.z * v.z / (2 * v.n) + v.z * sqrt(v.p * (1 - v.p) / v.n + v.z * v.z / (4 * v.n * v.n)))
    / (1 + v.z * v.z / v.n)), NULL))[1];
COMMENT ON MACRO wilson_high IS 'Upper end of the Wilson score interval of a proportion (Wilson 1927) at confidence 1 - alpha.';

CREATE MACRO pass_at_k(successes, n, k) AS if(k > n OR k < 1, NULL, 1 - list_product(list_transform(
    range(0, k::BIGINT), lambda i: greatest(0, n - successes - i) / (n - i)::DOUBLE)));
COMMENT ON MACRO pass_at_k IS 'Chance that at least one of k trials succeeds, of successes in n: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021). NULL where k > n.';

CREATE MACRO pass_hat_k(successes, n, k) AS if(k > n OR k < 1, NULL, list_product(list_transform(
    range(0, k::BIGINT), lambda i: greatest(0, successes - i) / (n - i)::DOUBLE)));
COMMENT ON MACRO pass_hat_k IS 'Chance that all of k trials succeed, pass^k, of successes in n: C(c, k) / C(n, k) (Yao et al. 2024). NULL where k > n.';

CREATE MACRO always_valid_rho2(alpha, n) AS (2 * ln(1 / alpha) + ln(1 + 2 * ln(1 / alpha))) / n;
COMMENT ON MACRO always_valid_rho2 IS 'The mixture variance that makes an always-valid interval shortest near n units (Waudby-Smith et al. 2021, approximate).';

CREATE MACRO always_valid_half(se, n, alpha, rho2) AS list_transform([{'se': se::DOUBLE, 'v': n * rho2 + 1.0,
    'nr': n * rho2}], lambda v: v.se * sqrt(2 * v.v / v.nr * ln(sqrt(v.v) / alpha)))[1];
COMMENT ON MACRO always_valid_half IS 'Half the width of the always-valid interval of a mean of n units with standard error se: Robbins'' normal mixture, asymptotic (Waudby-Smith et al. 2021). It holds at all n at once.';

CREATE MACRO always_valid_p(estimate, se, n, rho2) AS list_transform([{'z': estimate / se::DOUBLE,
    'nr': n * rho2::DOUBLE}], lambda v: least(1.0,
    sqrt(v.nr + 1) * exp(-v.z * v.z * v.nr / (2 * (v.nr + 1)))))[1];
COMMENT ON MACRO always_valid_p IS 'p-value that may be looked at after every unit: 1 / the normal mixture''s likelihood ratio at n units.';

CREATE MACRO smallest_detectable(se, df, alpha := 0.05, power := 0.8) AS
    (t_quantile(1 - alpha / 2, df) + t_quantile(power, df)) * se;
COMMENT ON MACRO smallest_detectable IS 'Minimum detectable effect: the true difference that a two-sided test at alpha finds with the given power, at standard error se.';

CREATE MACRO units_required(se, n, effect, alpha := 0.05, power := 0.8) AS
    ceil(pow((normal_quantile(1 - alpha / 2) + normal_quantile(power)) * se / effect, 2) * n)::BIGINT;
COMMENT ON MACRO units_required IS 'How many units it takes to find an effect with the given power, where n of them gave standard error se.';
