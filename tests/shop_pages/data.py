"""What a page tells machines: JSON-LD, OpenGraph, the state of its scripts; whole, partly, not at all, or wrongly."""

import json
from decimal import Decimal
from typing import Any

from markupsafe import Markup

from tests.shop_pages.draft import Draft

STOCK = {True: "InStock", False: "OutOfStock"}


def script(value: Any, kind: str = "application/ld+json", before: str = "", behind: str = "") -> Markup:
    written = json.dumps(value, ensure_ascii=False).replace("</", "<\\/")
    opening = f'<script type="{kind}">' if kind else "<script>"
    return Markup(f"{opening}{before}{written}{behind}</script>")


def written_amount(draft: Draft, amount: Decimal) -> Any:
    """As shops put amounts into data: a text, a number, a text with the local decimal mark."""
    plain = f"{amount:.{draft.locale.decimals}f}"
    as_number = float(amount) if draft.locale.decimals else int(amount)
    local = plain.replace(".", draft.locale.number[1]) if draft.locale.decimals == 2 else plain
    return draft.rng.choice([plain, plain, as_number, as_number, f"{amount.normalize():f}", local])


def offer(draft: Draft, amount: Decimal) -> dict[str, Any]:
    scheme = draft.rng.choice(["https://schema.org", "http://schema.org"])
    found: dict[str, Any] = {
        "@type": "Offer",
        "price": written_amount(draft, amount),
        "priceCurrency": draft.locale.currency,
    }
    if draft.in_stock is not None and draft.chance(0.85):
        found["availability"] = f"{scheme}/{STOCK[draft.in_stock]}" if draft.chance(0.9) else STOCK[draft.in_stock]
    if draft.chance(0.4):
        found["url"] = f"https://{draft.host}/p"
    if draft.chance(0.3):
        found |= {"itemCondition": f"{scheme}/NewCondition", "priceValidUntil": "2027-12-31"}
    if draft.chance(0.2):
        found["seller"] = {"@type": "Organization", "name": draft.shop.title()}
    if draft.chance(0.1):
        specified = {
            "@type": "UnitPriceSpecification",
            "price": found.pop("price"),
            "priceCurrency": found["priceCurrency"],
        }
        found["priceSpecification"] = [specified] if draft.chance(0.5) else specified
    return found


def product(draft: Draft, amount: Decimal | None) -> dict[str, Any]:
    of_type = draft.rng.choice(["MusicEvent", "CourseInstance", "TouristTrip"]) if draft.chance(0.05) else "Product"
    found: dict[str, Any] = {"@context": "https://schema.org/", "@type": of_type, "name": draft.title}
    found["image"] = draft.rng.choice(
        [f"https://{draft.host}/i/1.jpg", [f"https://{draft.host}/i/{n}.jpg" for n in range(3)]]
    )
    if draft.chance(0.6):
        found["description"] = draft.prose(2)
    if draft.sku and draft.chance(0.8):
        found["sku"] = draft.sku
    if draft.chance(0.6):
        found["brand"] = {"@type": "Brand", "name": draft.brand} if draft.chance(0.7) else draft.brand
    if draft.chance(0.3):
        found["aggregateRating"] = {
            "@type": "AggregateRating",
            "ratingValue": "4.5",
            "reviewCount": draft.rng.randrange(3, 900),
        }
    if amount is not None:
        one = offer(draft, amount)
        found["offers"] = one if draft.chance(0.7) else [one]
    return found


def trail(draft: Draft) -> dict[str, Any]:
    items = [
        {"@type": "ListItem", "position": n, "name": name, "item": f"https://{draft.host}/c/{n}"}
        for n, name in enumerate(draft.menu()[:3], 1)
    ]
    return {"@context": "https://schema.org", "@type": "BreadcrumbList", "itemListElement": items}


def shop_itself(draft: Draft) -> dict[str, Any]:
    search = {
        "@type": "SearchAction",
        "target": f"https://{draft.host}/search?q={{q}}",
        "query-input": "required name=q",
    }
    return {
        "@context": "https://schema.org",
        "@type": "WebSite",
        "name": draft.shop.title(),
        "url": f"https://{draft.host}/",
        "potentialAction": search,
    }


def others(draft: Draft) -> dict[str, Any]:
    """A list of other products with their offers."""
    items = []
    for position in range(1, draft.rng.randrange(4, 9)):
        other = {"@type": "Product", "name": draft.name(), "url": f"https://{draft.host}/p/{position}"}
        if draft.chance(0.7):
            other["offers"] = {
                "@type": "Offer",
                "price": f"{draft.other(0.3, 3)}",
                "priceCurrency": draft.locale.currency,
            }  # type: ignore[assignment]
        items.append({"@type": "ListItem", "position": position, "item": other})
    return {"@context": "https://schema.org", "@type": "ItemList", "itemListElement": items}


def put_data(draft: Draft, mode: str) -> None:
    """`full`: the product with its offer. `partial`: without the offer. `none`: nothing of the product."""
    draft.data = mode
    blocks = [maker(draft) for maker in (trail, shop_itself) if draft.chance(0.4)]
    if mode in ("full", "partial"):
        blocks.insert(draft.rng.randrange(len(blocks) + 1), product(draft, draft.in_data if mode == "full" else None))
    if blocks and draft.chance(0.2):
        draft.put("head", "{}", script({"@context": "https://schema.org", "@graph": [{**each} for each in blocks]}))
        return
    for each in blocks:
        draft.put(draft.rng.choice(["head", "head", "end"]), "{}", script(each))


def put_tags(draft: Draft, kind: str) -> None:
    """OpenGraph and other tags in the head."""
    if draft.chance(0.75):
        of_type = "product" if kind == "product" and draft.chance(0.6) else "website"
        draft.put(
            "head",
            '<meta property="og:type" content="{}">\n<meta property="og:title" content="{}">',
            of_type,
            draft.title,
        )
        draft.put("head", '<meta property="og:image" content="https://{}/i/og.jpg">', draft.host)
    if draft.chance(0.6):
        draft.put("head", '<meta name="description" content="{}">', draft.prose(2))
    if kind == "product" and draft.in_data is not None and draft.data != "none" and draft.chance(0.3):
        form = '<meta property="{0}:price:amount" content="{1}">\n<meta property="{0}:price:currency" content="{2}">'
        amount = f"{draft.in_data:.{draft.locale.decimals}f}"
        draft.put("head", form, draft.rng.choice(["product", "og"]), amount, draft.locale.currency)


def put_state(draft: Draft, kind: str) -> None:
    """What analytics and the page's own scripts keep. Amounts of other things stand there, too."""
    rng = draft.rng
    if draft.chance(0.5):
        event: dict[str, Any] = {
            "event": "pageview",
            "pageType": kind,
            "userId": None,
            "cartValue": 0,
            "language": draft.locale.language,
        }
        if kind == "product" and draft.in_data is not None and draft.chance(0.6):
            item = {"item_id": draft.sku, "item_name": draft.title, "price": float(draft.in_data), "quantity": 1}
            event |= {
                "event": "view_item",
                "ecommerce": {"currency": draft.locale.currency, "value": float(draft.in_data), "items": [item]},
            }
        draft.put("end", "{}", script(event, "", "window.dataLayer=window.dataLayer||[];dataLayer.push(", ");"))
    if draft.chance(0.5):
        noise = {
            "".join(rng.choices("abcdefghijklmnop", k=6)): rng.choice(
                [True, rng.random(), rng.randrange(10_000), None, "x" * 8]
            )
            for _ in range(rng.randrange(5, 60))
        }
        draft.put(
            "end", "{}", script({"settings": noise, "features": list(noise)}, "", f"window.__{draft.prefix.upper()}__=")
        )
    if draft.chance(0.3):
        draft.put(
            "head",
            "<script>(function(w,l){{w[l]=w[l]||[];w[l].push({{'gtm.start':new Date().getTime()}});}})"
            "(window,'dataLayer','GTM-{}');</script>",
            rng.randrange(10_000, 99_999),
        )
    if draft.chance(0.3):
        rules = "".join(
            f".{rng.choice('abcdefgh')}{n}{{margin:{rng.randrange(40)}px;color:#{rng.randrange(4096):03x}}}"
            for n in range(rng.randrange(20, 200))
        )
        draft.put("head", "<style>{}</style>", Markup(rules))
