"""Amounts and markup that are easily taken for the price, each put where shops put it."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from markupsafe import Markup

from tests.shop_pages.data import others, script
from tests.shop_pages.draft import Draft


def price_of(draft: Draft) -> Decimal:
    assert draft.price is not None
    return draft.price


def put_note(draft: Draft, slots: str, text: str, role: str = "note") -> None:
    """A short text in one of these places, in one of the elements that shops use for such."""
    form = draft.rng.choice([
        "<div {0}>{1}</div>", "<p {0}>{1}</p>", "<span {0}>{1}</span>", "<div {0}><small>{1}</small></div>",
        '<div {0}><i class="icon"></i> <span>{1}</span></div>', "<ul {0}><li>{1}</li></ul>",
    ])  # fmt: skip
    draft.put(draft.rng.choice(slots.split()), form, draft.css(role), text)


def instalment(draft: Draft) -> None:
    parts = draft.rng.choice([2, 3, 4, 6, 10, 12])
    put_note(
        draft,
        "after_price after_price beside_price near_buy",
        draft.fill("part", draft.locale.part(price_of(draft), 1 / parts), parts),
    )


def monthly(draft: Draft) -> None:
    share = draft.rng.uniform(0.02, 0.12)
    put_note(
        draft,
        "after_price beside_price near_buy before_price",
        draft.fill("month", draft.locale.part(price_of(draft), share)),
    )


def per_unit(draft: Draft) -> None:
    put_note(draft, "after_price beside_price", draft.fill("unit", draft.other(0.05, 0.8)), "unit")


def unit_read_twice(draft: Draft) -> None:
    """The price of a unit with a copy for screen readers; the unit stands behind both."""
    before, _, behind = draft.fill("unit").partition("{}")
    said = draft.said(draft.other(0.05, 0.8))
    hidden = draft.rng.choice(["sr-only", "a-offscreen", draft.rng.choice("abcxyz") + "9f2"])
    form = '<div {}>{}<span class="{}">{}</span><span aria-hidden="true">{}</span>{}</div>'
    slot = draft.rng.choice(["after_price", "beside_price"])
    draft.put(slot, form, draft.css("unit"), before, hidden, said, said, behind)


def lowest_in_30_days(draft: Draft) -> None:
    """EU law has shops that lower a price state the lowest one of the last 30 days."""
    put_note(draft, "before_price after_price beside_price", draft.fill("lowest", draft.other(0.7, 1.3)))


def percentage(draft: Draft) -> None:
    """A former price that nothing shows but a percentage."""
    share = draft.rng.randrange(5, 60)
    was = draft.locale.part(price_of(draft), 100 / (100 - share))
    form = draft.rng.choice([
        "<span>-{}%</span> <span>{}</span>", '<i class="badge">{}%</i><b>{}</b>', "<div>-{} %</div><div>{}</div>",
    ])  # fmt: skip
    draft.put("beside_price", form, share, draft.money(was))


def as_low_as(draft: Draft) -> None:
    if draft.chance(0.6):
        put_note(draft, "after_price near_buy before_price", draft.fill("as_low", draft.other(0.3, 0.85)))
        return
    rows = [(step, draft.other(*span)) for step, span in ((5, (0.85, 0.95)), (10, (0.7, 0.84)), (50, (0.5, 0.69)))]
    cells = Markup("").join(
        Markup("<tr><td>{}+</td><td>{}</td></tr>").format(step, draft.money(each)) for step, each in rows
    )
    draft.put(
        "after_buy",
        '<table class="{}"><tr><th>{}</th><th>{}</th></tr>{}</table>',
        draft.rng.choice(["tier-prices", "bulk", "qty-breaks"]),
        draft.say("qty"),
        draft.say("price"),
        cells,
    )


def shipping(draft: Draft) -> None:
    put_note(
        draft,
        "before_price after_price near_buy after_buy",
        draft.fill("ship", draft.locale.amount(draft.rng, 3, 20)),
        "ship",
    )


def free_shipping(draft: Draft) -> None:
    put_note(draft, "top top near_buy before_price", draft.fill("free", draft.locale.amount(draft.rng, 25, 120)), "top")


def used_first(draft: Draft) -> None:
    put_note(draft, "before_price before_price after_price near_buy", draft.fill("used", draft.other(0.4, 0.9)))


def other_sellers(draft: Draft) -> None:
    rows = Markup("").join(
        Markup("<div {}><span>{}</span> <b {}>{}</b> <a href='/o/{}'>{}</a></div>").format(
            draft.css("card"),
            f"{draft.say('sold_by')} {draft.rng.choice(['Alfa', 'Toko', 'Best4U', 'Rapid'])}",
            draft.css("cardprice"),
            draft.money(draft.other(0.7, 1.4)),
            n,
            draft.say("details"),
        )
        for n in range(draft.rng.randrange(2, 5))
    )
    draft.put(
        draft.rng.choice(["after_buy", "below"]),
        '<div class="{}"><h3>{}</h3>{}</div>',
        draft.rng.choice(["offers-list", "other-sellers", "more-offers"]),
        draft.say("sellers"),
        rows,
    )


def cards(draft: Draft, count: int) -> Markup:
    """Other products with their prices, as in carousels."""
    form = draft.rng.choice([
        '<li {0}><a href="/p/{4}"><img src="/i/{4}.jpg" alt="{1}"></a><h3>{1}</h3><div {2}>{3}</div></li>',
        '<div {0}><a href="/p/{4}">{1}</a><span {2}>{3}</span><button>{5}</button></div>',
        '<article {0}><h4><a href="/p/{4}">{1}</a></h4><p {2}>{3}</p></article>',
        '<div {0} data-id="{4}" data-price="{6}"><span>{1}</span> <strong {2}>{3}</strong></div>',
    ])  # fmt: skip
    found = []
    for _ in range(count):
        amount = draft.other(0.2, 4)
        said: Markup = draft.money(amount)
        if draft.chance(0.25):
            said = Markup("<del>{}</del> {}").format(
                draft.money(draft.locale.rounded(amount * Decimal("1.3"), draft.rng)), said
            )
        found.append(
            Markup(form).format(
                draft.css("card"),
                draft.name(),
                draft.css("cardprice"),
                said,
                draft.rng.randrange(99_999),
                draft.say("buy"),
                amount,
            )
        )
    return Markup("\n").join(found)


def related(draft: Draft) -> None:
    tag = draft.rng.choice(["div", "section", "aside", "ul"])
    html = Markup("<{0} {1}><h2>{2}</h2>{3}</{0}>").format(
        Markup(tag), draft.css("related"), draft.say("related"), cards(draft, draft.rng.randrange(3, 10))
    )
    draft.put(draft.rng.choice(["below", "below", "aside", "after_buy"]), "{}", html)


def cards_with_headings(draft: Draft) -> None:
    """Other products that link nowhere: the heading of each stands below that of their section."""
    section, card = draft.rng.choice([("h2", "h3"), ("h2", "h5"), ("h3", "h4")])
    found = Markup("").join(
        Markup("<article {0}><{1}>{2}</{1}><p {3}>{4}</p></article>").format(
            draft.css("card"), Markup(card), draft.name(), draft.css("cardprice"), draft.money(draft.other(0.2, 4))
        )
        for _ in range(draft.rng.randrange(1, 7))
    )
    html = Markup("<section {0}><{1}>{2}</{1}>{3}</section>")
    draft.put("below", "{}", html.format(draft.css("text"), Markup(section), draft.say("related"), found))


def bundle(draft: Draft) -> None:
    one, whole = draft.other(0.2, 0.9), draft.other(1.1, 2.2)
    said = draft.fill("bundle", whole)
    html = '<div class="{}"><h3>{}</h3><p>{} + {} <b>{}</b></p><p>{}</p><button>{}</button></div>'
    name = draft.rng.choice(["bundle", "bought-together", "set-offer", "combo"])
    draft.put(
        draft.rng.choice(["after_buy", "below"]),
        html,
        name,
        draft.say("related"),
        draft.title,
        draft.name(),
        draft.money(one),
        said,
        draft.say("buy"),
    )


def cart_widget(draft: Draft) -> None:
    amount = draft.other(0.3, 3) if draft.chance(0.7) else Decimal(0)
    form = draft.rng.choice([
        '<a href="/cart" {0}>{1} <span>{2}</span></a>',
        '<div {0}><span class="count">2</span> {1}: <b class="price">{2}</b></div>',
        '<div {0}><ul><li>{3} <span class="price">{2}</span></li></ul><p>{1}: <strong>{2}</strong></p></div>',
    ])  # fmt: skip
    draft.put("cart", form, draft.css("cart"), draft.say("cart"), draft.money(amount), draft.name())


def struck(draft: Draft) -> None:
    draft.was = draft.locale.rounded(price_of(draft) * Decimal(draft.rng.uniform(1.1, 1.9)), draft.rng)
    if draft.was <= price_of(draft):
        draft.was = price_of(draft) * 2


def listed_in_data(draft: Draft) -> None:
    """The data for machines still has the price before the sale."""
    struck(draft)
    draft.in_data = draft.was


def deposit(draft: Draft) -> None:
    put_note(draft, "before_price after_price near_buy", draft.fill("deposit", draft.other(0.05, 0.3)))


def saving(draft: Draft) -> None:
    struck(draft)
    assert draft.was is not None
    share = round(100 - 100 * price_of(draft) / draft.was)
    said = draft.words["save"].replace("{}", draft.said(draft.was - price_of(draft)))
    put_note(draft, "beside_price after_price", draft.rng.choice([said, f"{said} ({share}%)", f"-{share}%"]))


def warranty(draft: Draft) -> None:
    said = draft.fill("warranty", draft.other(0.05, 0.3))
    draft.put(
        "near_buy",
        '<label {}><input type="checkbox" name="w{}"> {}</label>',
        draft.css("note"),
        draft.rng.randrange(99),
        said,
    )


def excluding_tax(draft: Draft) -> None:
    put_note(draft, "beside_price after_price", draft.fill("excl", draft.locale.part(price_of(draft), 0.83)))


def coupon(draft: Draft) -> None:
    put_note(draft, "foot top below", draft.fill("newsletter", draft.locale.amount(draft.rng, 5, 20)))


def gift_card(draft: Draft) -> None:
    put_note(draft, "foot below aside", draft.fill("gift", draft.locale.amount(draft.rng, 10, 50)))


def points(draft: Draft) -> None:
    put_note(draft, "after_price near_buy beside_price", draft.fill("points", None, draft.rng.randrange(5, 4_000)))


def options(draft: Draft) -> None:
    """Variants that cost more."""
    kinds = ["S", "M", "L", "XL", "XXL"][: draft.rng.randrange(2, 5)]
    extra = [(kind, draft.other(0.05, 0.4)) for kind in kinds]
    if draft.chance(0.5):
        inner = Markup("").join(
            Markup("<option>{} (+{})</option>").format(kind, draft.said(each)) for kind, each in extra
        )
        draft.put("near_buy", '<select name="size">{}</select>', inner)
    else:
        inner = Markup("").join(
            Markup("<label><input type=radio name=o> {} <span>+{}</span></label>").format(kind, draft.money(each))
            for kind, each in extra
        )
        draft.put(
            "near_buy", '<div class="{}">{}</div>', draft.rng.choice(["swatches", "options", "variant-picker"]), inner
        )


def glued(draft: Draft) -> None:
    """Elements beside the price without a space, so that their digits touch."""
    tail = draft.rng.choice(["4.5", f"{draft.rng.randrange(2, 400)}", f"{draft.rng.randrange(10, 60)}%", "24h"])
    form = draft.rng.choice(
        ["<span>{}</span>", '<span class="badge">{}</span>', "<b>{}</b>", '<span class="rating-value">{}</span>']
    )
    draft.put("glued", form, tail)


def hidden_copy(draft: Draft) -> None:
    """The same price once more for small screens, or in a bar that sticks."""
    name = draft.rng.choice(["mobile-only", "sticky-atc", "d-md-none", "visible-xs"])
    draft.put(
        "below",
        '<div class="{}" style="display:none"><span {}>{}</span> <span>{}</span></div>',
        name,
        draft.css("price"),
        draft.money(price_of(draft)),
        draft.say("buy"),
    )


def list_in_data(draft: Draft) -> None:
    """Other products in the data for machines, before the page's own or alone."""
    draft.put("head", "{}", script(others(draft)))
    related(draft)


def empty_price_in_data(draft: Draft) -> None:
    """A template that was not filled."""
    draft.in_data = Decimal(0)


DISTRACTORS: Final[Mapping[str, Callable[[Draft], None]]] = {
    each.__name__.replace("_", " "): each
    for each in (
        instalment, monthly, per_unit, as_low_as, shipping, free_shipping, used_first, other_sellers, related, bundle,
        cart_widget, struck, listed_in_data, deposit, saving, warranty, excluding_tax, coupon, gift_card, points,
        options, glued, hidden_copy, list_in_data, empty_price_in_data, unit_read_twice, lowest_in_30_days, percentage,
        cards_with_headings,
    )
}  # fmt: skip
EXCLUSIVE: Final = (
    {"struck", "listed in data", "saving", "empty price in data", "percentage"},
    {"glued", "saving", "excluding tax", "per unit", "unit read twice", "percentage"},
)
"""At most one of each on one page."""
