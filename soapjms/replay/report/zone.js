"use strict";
// Times in the reader's time zone, in each form that the page has. Without scripts all times are in UTC.
const inZone = (() => {
  const SECOND = 1000, MINUTE = 60 * SECOND, DAY = 24 * 60 * MINUTE;
  const whole = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
  const short = new Intl.DateTimeFormat("en", { timeZoneName: "short" });
  const long = new Intl.DateTimeFormat("en", { timeZoneName: "long" });
  const digits = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23" };
  const numbers = new Intl.DateTimeFormat("en-GB", digits), month = new Intl.DateTimeFormat("en-GB", { month: "short" });
  const partsOf = (time, format = numbers) => Object.fromEntries(format.formatToParts(time).map((part) => [part.type, part.value]));

  const offset = (time) => partsOf(time, short).timeZoneName; // "UTC", "GMT+5:30"
  const told = (time) => `${whole.format(time).replace(" at ", ", ")} ${offset(time)}`;
  const date = (time) => {
    const { day } = partsOf(time);
    return `${Number(day)} ${month.format(time)}`;
  };

  // As `moment` in texts.py, but what is a day in UTC begins at another hour here, which is said. `before` is the time
  // of the label before this one, if there is any: then only what differs is written.
  const moment = (time, width, before = null) => {
    const { year, hour, minute, second, fractionalSecond } = partsOf(time), past = before === null ? {} : partsOf(before);
    const toMinute = `${hour}:${minute}`, toSecond = `${toMinute}:${second}`;
    if (width >= DAY) return [date(time), year !== past.year && year, toMinute !== "00:00" && toMinute].filter(Boolean).join(" ");
    const clock = width % SECOND ? `${toSecond}.${fractionalSecond.slice(0, 2)}` : width % MINUTE ? toSecond : toMinute;
    return before !== null && date(time) === date(before) ? clock : `${date(time)} ${clock}`;
  };

  const clock = (time, width) => {
    const { year, month, day, hour, minute, second, fractionalSecond } = partsOf(time);
    return `${year}-${month}-${day} ${hour}:${minute}:${second}${width < SECOND ? `.${fractionalSecond}` : ""}`;
  };
  // The offset is said at both ends only where the clocks are changed in between.
  const range = (begin, end, width) => {
    const before = offset(begin), after = offset(end);
    return `${clock(begin, width)}${before === after ? "" : ` ${before}`} to ${clock(end, width)} ${after}`;
  };

  // "your time zone, India Standard Time (GMT+5:30)"; where the clocks are changed, the time after that, too.
  const named = (time) => `${partsOf(time, long).timeZoneName} (${offset(time)})`;
  const words = (begin, end) => {
    const isUtc = [begin, end].every((time) => offset(time) === "UTC");
    return isUtc ? "UTC" : `your time zone, ${[...new Set([begin, end].map(named))].join(", then ")}`;
  };
  return { told, moment, range, words };
})();
