import treaper = require("treaper");
const child = treaper.spawn("a", ["b"], { stdio: "inherit", treaper: { grace: 5 } });
child.kill();
