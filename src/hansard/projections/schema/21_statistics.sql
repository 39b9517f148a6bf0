-- Statistics as macros of plain SQL, usable in any query. Formulas and their sources are in the
-- comments. Sums have a fixed order, so that equal input gives equal bytes. NULL gives NULL, as does
-- input that no formula covers (a negative count, a share above 1): neither is an error.

CREATE MACRO gauss() AS '[
    [0.0006144963737869407, 0.0015766730261529192], [0.003234913866824621, 0.0036637769506381312],
    [0.007937708138586571, 0.00573861728961727], [0.014704203726876374, 0.007789657861471924],
    [0.02350614841978457, 0.009808080228677764], [0.034306654646722834, 0.01178538041966219],
    [0.04706043164221516, 0.013713254854178474], [0.06171398986287606, 0.015583613916399045],
    [0.07820586918780323, 0.01738861128238522], [0.09646689798527869, 0.019120675532915354],
    [0.11642048374212983, 0.020772541471732374], [0.13798293453809268, 0.02233728042834714],
    [0.16106381018366805, 0.02380832924624524], [0.1855663016117432, 0.025179517776927236],
    [0.21138763695801366, 0.026445094742596834], [0.23841951263888347, 0.027599751849992082],
    [0.2665485476245208, 0.028638646050201607], [0.2956567590046416, 0.029557419849197818],
    [0.32562205685391965, 0.03035221958294694], [0.3563187563222722, 0.031019711579946332],
    [0.38761810480265546, 0.03155709614312701], [0.41938882196555416, 0.03196211929232409],
    [0.4514976503952686, 0.032233082217975044], [0.4838099145185653, 0.03236884840634196],
    [0.5161900854814346, 0.03236884840634196], [0.5485023496047313, 0.032233082217975044],
    [0.5806111780344458, 0.03196211929232409], [0.6123818951973445, 0.03155709614312701],
    [0.6436812436777278, 0.031019711579946332], [0.6743779431460803, 0.03035221958294694],
    [0.7043432409953584, 0.029557419849197818], [0.7334514523754792, 0.028638646050201607],
    [0.7615804873611165, 0.027599751849992082], [0.7886123630419863, 0.026445094742596834],
    [0.8144336983882569, 0.025179517776927236], [0.838936189816332, 0.02380832924624524],
    [0.8620170654619074, 0.02233728042834714], [0.8835795162578701, 0.020772541471732374],
    [0.9035331020147214, 0.019120675532915354], [0.9217941308121967, 0.01738861128238522],
    [0.938286010137124, 0.015583613916399045], [0.9529395683577848, 0.013713254854178474],
    [0.9656933453532772, 0.01178538041966219], [0.9764938515802154, 0.009808080228677764],
    [0.9852957962731236, 0.007789657861471924], [0.9920622918614135, 0.00573861728961727],
    [0.9967650861331754, 0.0036637769506381312], [0.999385503626213, 0.0015766730261529192]]'::DOUBLE[][];
COMMENT ON MACRO gauss IS 'Helper of other macros.';

CREATE MACRO log_1p(y) AS if(y < 1, 2 * atanh(y / (2 + y)), ln(1 + y));
COMMENT ON MACRO log_1p IS 'Helper of other macros.';

-- Integral of the density relative to its value at x, by Gauss-Legendre from x to where it is exp(-40); x < 1e150.
CREATE MACRO normal_tail(x) AS list_transform([80 / (sqrt(x * x + 80) + x)], lambda l:
    0.3989422804014327 * exp(-x * x / 2) * l * list_sum(list_transform(gauss(), lambda n:
        n[2] * exp(-l * n[1] * (x + l * n[1] / 2)))))[1];
COMMENT ON MACRO normal_tail IS 'P(Z > x), x >= 0.';

CREATE MACRO normal_cdf(x) AS list_transform([x::DOUBLE], lambda v:
    CASE WHEN v IS NULL OR isnan(v) THEN NULL
    WHEN abs(v) > 40 THEN if(v > 0, 1.0, 0.0)
    WHEN v > 0 THEN 1 - normal_tail(v) ELSE normal_tail(-v) END)[1];
COMMENT ON MACRO normal_cdf IS 'P(Z <= x), standard normal.';

CREATE MACRO normal_quantile(p) AS list_transform([p::DOUBLE], lambda v:
    CASE WHEN v IS NULL OR NOT v BETWEEN 0 AND 1 THEN NULL
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
COMMENT ON MACRO normal_quantile IS 'Normal quantile (Wichura 1988, AS 241).';

-- Gamma((df + 1) / 2) / (sqrt(df / 2) Gamma(df / 2)); from 100 on its series (A&S 6.1.47).
CREATE MACRO t_scale(df) AS CASE WHEN df < 100
    THEN exp(lgamma((df + 1) / 2) - lgamma(df / 2)) / sqrt(df / 2)
    ELSE 1 + (-1 / 4 + (1 / 32 + (5 / 128 + (-21 / 2048 + (-399 / 8192 + 869 / 65536
        / df) / df) / df) / df) / df) / df END;
COMMENT ON MACRO t_scale IS 'Helper of `t_tail` (Abramowitz and Stegun 6.1.47).';

-- sqrt(r / (1 - exp(-r))), r > 0.
CREATE MACRO t_stretch(r) AS sqrt(r / 2 * (1 + 1 / tanh(r / 2)));
COMMENT ON MACRO t_stretch IS 'Helper of `t_tail`.';

-- P(T > x) / (t_scale(df) exp(-c^2 / 2) / sqrt(2 pi)), x > 0, c = sqrt(df ln(1 + x^2 / df)). In c the
-- density of t is the normal one times t_stretch(c^2 / df); Gauss-Legendre from c to exp(-40) of it.
CREATE MACRO t_mills(c, df) AS list_transform([80 / (sqrt(c * c + 80) + c)], lambda l:
    l * list_sum(list_transform(gauss(), lambda n: n[2] * exp(-l * n[1] * (c + l * n[1] / 2))
        * t_stretch((c + l * n[1]) * (c + l * n[1]) / df))))[1];
COMMENT ON MACRO t_mills IS 'Helper of `t_tail`.';

CREATE MACRO t_tail(x, df) AS list_transform([sqrt(df * log_1p(x * x / df))], lambda c:
    0.3989422804014327 * t_scale(df) * exp(-c * c / 2) * t_mills(c, df))[1];
COMMENT ON MACRO t_tail IS 'P(T > x), x >= 0.';

CREATE MACRO t_p(x, df) AS list_transform([{'x': abs(x::DOUBLE), 'df': if(df > 1e15, 1e15, df::DOUBLE)}], lambda v:
    CASE WHEN v.x IS NULL OR v.df IS NULL OR isnan(v.x) OR NOT v.df > 0 THEN NULL
    WHEN v.x > 1e150 THEN 0.0 ELSE least(1.0, 2 * t_tail(v.x, v.df)) END)[1];
COMMENT ON MACRO t_p IS 'Two-sided p-value of t, accurate to 1e-12.';

CREATE MACRO t_cdf(x, df) AS list_transform([{'x': x::DOUBLE, 'p': t_p(x, df)}], lambda v:
    if(v.x > 0, 1 - v.p / 2, v.p / 2))[1];
COMMENT ON MACRO t_cdf IS 'P(T <= x), Student''s t.';

-- Newton's method on ln P(T > x) over c^2 (see t_mills), nearly straight, from below.
CREATE MACRO t_quantile(p, df) AS list_transform([{'p': p::DOUBLE, 'q': least(p, 1 - p)::DOUBLE,
    'df': if(df > 1e15, 1e15, df::DOUBLE),
    'f': 0.3989422804014327 * t_scale(if(df > 1e15, 1e15, df::DOUBLE))}], lambda v:
    CASE WHEN v.p IS NULL OR v.df IS NULL OR NOT v.p BETWEEN 0 AND 1 OR NOT v.df > 0 THEN NULL
    WHEN v.p = 0.5 THEN 0.0
    WHEN v.q = 0 THEN sign(v.p - 0.5) * 'inf'::DOUBLE
    ELSE sign(v.p - 0.5) * list_transform([list_reduce(range(6)::DOUBLE[], lambda c, i:
        list_transform([t_mills(c, v.df)], lambda m: sqrt(greatest(c * c / 4, c * c
            + 2 * c * m / t_stretch(c * c / v.df) * (ln(m / v.q * v.f) - c * c / 2))))[1],
        (0.5 - v.q) / v.f)], lambda c: sqrt(2 * v.df * exp(c * c / v.df / 2) * sinh(c * c / v.df / 2)))[1] END)[1];
COMMENT ON MACRO t_quantile IS 'Student''s t quantile (Newton''s method).';

CREATE MACRO chi_square_p(x, df) AS list_transform([{'x': x::DOUBLE, 'df': df::BIGINT}], lambda v:
    CASE WHEN v.x IS NULL OR v.df IS NULL OR v.df < 1 OR isnan(v.x) THEN NULL
    WHEN v.x <= 0 THEN 1.0 WHEN isinf(v.x) THEN 0.0
    WHEN v.df % 2 = 0 THEN least(1.0, list_sum(list_transform(range(0, v.df // 2), lambda i:
        exp(-v.x / 2 + i * ln(v.x / 2) - lgamma(i + 1)))))
    ELSE least(1.0, 2 * normal_tail(sqrt(v.x)) + coalesce(list_sum(list_transform(
        range(1, (v.df - 1) // 2 + 1), lambda i:
        exp(-v.x / 2 + (i - 0.5) * ln(v.x / 2) - lgamma(i + 0.5)))), 0.0)) END)[1];
COMMENT ON MACRO chi_square_p IS 'P(X >= x) of the chi-square distribution (Abramowitz and Stegun 26.4.4, 26.4.5).';

CREATE MACRO binomial_p(k, n) AS list_transform([{'k': least(k, n - k)::BIGINT, 'n': n::BIGINT}], lambda v:
    CASE WHEN v.n IS NULL OR v.k IS NULL OR v.k < 0 THEN NULL WHEN v.n = 0 THEN 1.0
    ELSE least(1.0, 2 * list_sum(list_transform(range(0, v.k + 1), lambda i:
        exp(lgamma(v.n + 1) - lgamma(i + 1) - lgamma(v.n - i + 1) - v.n * ln(2.0))))) END)[1];
COMMENT ON MACRO binomial_p IS 'Two-sided exact p-value of k of n at probability 1/2.';

CREATE MACRO mcnemar_p(b, c) AS if(least(b, c) < 0 OR b IS NULL OR c IS NULL, NULL, binomial_p(b, b + c));
COMMENT ON MACRO mcnemar_p IS 'Exact McNemar p-value of b and c discordant pairs (McNemar 1947).';

CREATE MACRO wilson_end(successes, n, z, side) AS list_transform([{'p': successes / nullif(n, 0)::DOUBLE,
    'n': n::DOUBLE, 'z': z}], lambda v:
    CASE WHEN v.z IS NULL OR v.n <= 0 OR v.p IS NULL OR NOT v.p BETWEEN 0 AND 1 THEN NULL
    WHEN v.p = side THEN side::DOUBLE
    ELSE (v.p + v.z * v.z / (2 * v.n) + (2 * side - 1) * v.z
        * sqrt(v.p * (1 - v.p) / v.n + v.z * v.z / (4 * v.n * v.n))) / (1 + v.z * v.z / v.n) END)[1];
COMMENT ON MACRO wilson_end IS 'Lower (side 0) or upper (1) end of the Wilson interval at a normal quantile z.';

CREATE MACRO wilson_low(successes, n, alpha := 0.05) AS
    wilson_end(successes, n, normal_quantile(1 - alpha / 2), 0);
COMMENT ON MACRO wilson_low IS 'Lower end of the Wilson interval (Wilson 1927) at confidence 1 - alpha.';

CREATE MACRO wilson_high(successes, n, alpha := 0.05) AS
    wilson_end(successes, n, normal_quantile(1 - alpha / 2), 1);
COMMENT ON MACRO wilson_high IS 'Upper end of the Wilson interval (Wilson 1927) at confidence 1 - alpha.';

CREATE MACRO binomial_above(k, n, q) AS coalesce(list_sum(list_transform(range(k::BIGINT, n::BIGINT + 1), lambda i:
    exp(lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) + i * ln(q) + (n - i) * ln(1 - q)))), 0.0);
COMMENT ON MACRO binomial_above IS 'P(X >= k) of n trials with probability q.';

-- The beta quantile, by bisection.
CREATE MACRO binomial_share(k, n, tail) AS list_transform([{'k': k::BIGINT, 'n': n::BIGINT, 'tail': tail::DOUBLE}], lambda v:
    if(v.k BETWEEN 1 AND v.n AND v.tail > 0 AND v.tail < 1,
        list_reduce(range(2, 56)::DOUBLE[], lambda q, i:
            q + if(binomial_above(v.k, v.n, q) < v.tail, 1, -1) * pow(2, -i), 0.5), NULL))[1];
COMMENT ON MACRO binomial_share IS 'The q at which P(X >= k) of n trials equals tail.';

CREATE MACRO exact_low(k, n, tail) AS if(k = 0, 0.0, binomial_share(k, n, tail));
COMMENT ON MACRO exact_low IS 'Lower end of the exact interval of k of n (Clopper and Pearson 1934).';

CREATE MACRO exact_high(k, n, tail) AS if(k = n, 1.0, binomial_share(k + 1, n, 1 - tail));
COMMENT ON MACRO exact_high IS 'Upper end of the exact interval of k of n (Clopper and Pearson 1934).';

CREATE MACRO share_of(share, toward, against) AS list_transform([{'s': 2 * share - 1, 't': toward, 'a': against}], lambda v:
    v.s * if(v.s >= 0, v.t, v.a))[1];
COMMENT ON MACRO share_of IS 'Helper of other macros.';

CREATE MACRO net_low(above, below, n, alpha) AS share_of(exact_low(above, above + below, 0.45 * alpha),
    exact_low(above + below, n, 0.05 * alpha), exact_high(above + below, n, 0.05 * alpha));
COMMENT ON MACRO net_low IS 'Lower end of an exact interval of the net share of n pairs, above minus below.';

CREATE MACRO net_high(above, below, n, alpha) AS share_of(exact_high(above, above + below, 0.45 * alpha),
    exact_high(above + below, n, 0.05 * alpha), exact_low(above + below, n, 0.05 * alpha));
COMMENT ON MACRO net_high IS 'Upper end of the interval of `net_low`.';

CREATE MACRO pass_at_k(successes, n, k) AS if(k BETWEEN 1 AND n AND successes BETWEEN 0 AND n,
    1 - list_product(list_transform(range(0, k::BIGINT), lambda i:
        greatest(0, n - successes - i) / (n - i)::DOUBLE)), NULL);
COMMENT ON MACRO pass_at_k IS 'P(at least one of k trials succeeds): 1 - C(n - c, k) / C(n, k) (Chen et al. 2021). NULL for k > n.';

CREATE MACRO pass_hat_k(successes, n, k) AS if(k BETWEEN 1 AND n AND successes BETWEEN 0 AND n,
    list_product(list_transform(range(0, k::BIGINT), lambda i:
        greatest(0, successes - i) / (n - i)::DOUBLE)), NULL);
COMMENT ON MACRO pass_hat_k IS 'P(all of k trials succeed): C(c, k) / C(n, k) (Yao et al. 2024). NULL for k > n.';

CREATE MACRO always_valid_rho2(alpha, n) AS if(n > 0 AND alpha > 0 AND alpha < 1,
    (2 * ln(1 / alpha) + ln(1 + 2 * ln(1 / alpha))) / n, NULL);
COMMENT ON MACRO always_valid_rho2 IS 'Mixture variance that makes the always-valid interval shortest near n units (Waudby-Smith et al. 2021).';

CREATE MACRO always_valid_half(se, n, alpha, rho2) AS list_transform([{'se': se::DOUBLE, 'nr': n * rho2::DOUBLE,
    'alpha': alpha::DOUBLE}], lambda v: if(v.se >= 0 AND v.nr > 0 AND v.alpha > 0 AND v.alpha < 1,
    v.se * sqrt((v.nr + 1) / v.nr * (ln(v.nr + 1) - 2 * ln(v.alpha))), NULL))[1];
COMMENT ON MACRO always_valid_half IS 'Half-width of the always-valid interval of a mean of n units (normal mixture, Waudby-Smith et al. 2021).';

CREATE MACRO always_valid_p(estimate, se, n, rho2) AS list_transform([{'z': estimate / nullif(se, 0)::DOUBLE,
    'nr': n * rho2::DOUBLE, 'se': se::DOUBLE}], lambda v: if(v.se > 0 AND v.nr > 0 AND v.z IS NOT NULL, least(1.0,
    sqrt(v.nr + 1) * exp(-v.z * v.z * v.nr / (2 * (v.nr + 1)))), NULL))[1];
COMMENT ON MACRO always_valid_p IS 'p-value valid after every unit; NULL unless se is above 0.';

CREATE MACRO smallest_detectable(se, df, alpha := 0.05, power := 0.8) AS
    (t_quantile(1 - alpha / 2, df) + t_quantile(power, df)) * se;
COMMENT ON MACRO smallest_detectable IS 'Minimum detectable effect of a two-sided test at alpha with this power and standard error.';

CREATE MACRO units_required(se, n, effect, alpha := 0.05, power := 0.8) AS
    if(se >= 0 AND n > 0 AND abs(effect) > 0 AND alpha + power IS NOT NULL, TRY_CAST(ceil(pow(
        (normal_quantile(1 - alpha / 2) + normal_quantile(power)) * se / nullif(effect, 0), 2) * n) AS BIGINT), NULL);
COMMENT ON MACRO units_required IS 'Units needed to find an effect with this power, given se of n units.';

CREATE MACRO finite(x) AS if(isfinite(x), x, NULL);
COMMENT ON MACRO finite IS 'Helper of other macros.';

CREATE MACRO power_of(x) AS if(x IS NULL OR x = 0 OR x BETWEEN 1e-100 AND 1e100, 1.0, pow(2.0, floor(log2(x))));
COMMENT ON MACRO power_of IS 'Helper of other macros.';
