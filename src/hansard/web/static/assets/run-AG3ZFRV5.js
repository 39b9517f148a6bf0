import{b as r}from"./chunk-TKBHH6QR.js";import{m18 as e}from"./core-EU5TIYYD.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
